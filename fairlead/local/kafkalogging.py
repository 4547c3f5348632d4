"""What brokers log, whether they run as processes or in containers: warnings, and denied requests (INFO), which are the
audit trail."""

from __future__ import annotations

from typing import Final

_CONFIGURATION: Final = """Configuration:
  Appenders:
    {kind}:
      name: {name}
      PatternLayout:
        pattern: "%d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}} %m%n"
{more}  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: {name}
    Logger:
      - name: kafka.authorizer.logger
        level: INFO
      - name: org.apache.kafka.common.utils.AppInfoParser
        level: ERROR
"""
_ROLLING: Final = """      fileName: server.log
      filePattern: server.log.%i
      SizeBasedTriggeringPolicy:
        size: 10MB
      DefaultRolloverStrategy:
        max: 3
"""

TO_FILE: Final = _CONFIGURATION.format(kind="RollingFile", name="file", more=_ROLLING)
"""A ``log4j2.yaml`` for ``server.log`` in the broker's working folder."""

TO_CONSOLE: Final = _CONFIGURATION.format(kind="Console", name="console", more="")
"""A ``log4j2.yaml`` for standard output."""
