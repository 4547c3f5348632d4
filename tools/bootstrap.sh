#!/usr/bin/env bash
# Sees to everything that make needs: Python packages in .venv, Java 17 or later, Mosquitto 2.
#
# Packages come from requirements.lock, by hash. Java, Mosquitto and a missing python3-venv come through apt where root
# or sudo without a password allows it; elsewhere one line says what to install. Asks nothing, needs no terminal, can be
# interrupted and run again. PYTHON=/path/to/python chooses the Python.
#
# "tools/bootstrap.sh tests" sees to the programs that only tests run: kcat, promtool, openssl, git,
# Chromium. No test is skipped for want of one. It also compiles the tests and makes the archive of Spark's classes.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() { say "$*"; exit 4; }

# --- apt, where it may be used ---------------------------------------------------------------------------------------

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

may_use_apt() { command -v apt-get >/dev/null && as_root true; }

apt_updated=
apt_update() {
    [ -n "$apt_updated" ] && return
    say "reading the package lists (apt-get update)"
    as_root apt-get -qq update || say "apt-get update had errors; going on"
    apt_updated=1
}

# The first of some packages that this system has to offer.
apt_first() {
    local package
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
            echo "$package"
            return
        fi
    done
    return 1
}

# Installs packages; services that come with them are not started (policy-rc.d), since each site has its own Mosquitto.
apt_install() {
    local policy=/usr/sbin/policy-rc.d made= status=0
    apt_update
    say "installing $* (apt-get)"
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" && made=1
    fi
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -qq -y --no-install-recommends install "$@" </dev/null >&2 || status=$?
    [ -z "$made" ] || as_root rm -f "$policy"
    return "$status"
}

# --- Python ----------------------------------------------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

python=
find_python() {
    local candidate fallback=
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 python; do
        command -v "$candidate" >/dev/null && is_new_enough "$candidate" || continue
        python=$candidate
        can_make_venv "$candidate" && return
        fallback=${fallback:-$candidate}
    done
    python=$fallback
    [ -n "$python" ]
}

install_python() {
    local version package
    if find_python; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_update
        package=$(apt_first "python$version-venv" python3-venv) && apt_install "$package"
    else
        apt_update
        for version in 3.13 3.12 3.11; do
            if package=$(apt_first "python$version-venv"); then
                apt_install "python$version" "$package"
                return
            fi
        done
        return 1
    fi
}

make_venv() {
    if [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 && is_new_enough .venv/bin/python; then
        return
    fi
    if ! { find_python && can_make_venv "$python"; }; then
        { may_use_apt && install_python && find_python && can_make_venv "$python"; } || fail \
            "Python 3.11 or later with venv is missing. Debian/Ubuntu: apt install python3 python3-venv;" \
            "Fedora: dnf install python3; macOS: brew install python@3.13"
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

install_packages() {
    say "installing Python packages from requirements.lock (about 1.3 GB on disk, mostly Spark; once)"
    local pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input -q install --progress-bar off)
    "${pip[@]}" --require-hashes -r requirements.lock
    "${pip[@]}" --no-deps --no-build-isolation -e .
}

# --- Java and Mosquitto ----------------------------------------------------------------------------------------------

has_java() { .venv/bin/python -c 'from fairlead.jars import find_java; find_java()' >/dev/null 2>&1; }
has_mosquitto() {
    .venv/bin/python -c 'from fairlead.local.mosquitto import find_mosquitto; find_mosquitto()' >/dev/null 2>&1
}

install_programs() {
    local missing=() packages=() java
    has_java || missing+=("Java 17 or later")
    has_mosquitto || missing+=("Mosquitto 2")
    [ ${#missing[@]} -gt 0 ] || return 0
    if may_use_apt; then
        apt_update
        if ! has_java && java=$(apt_first openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless); then
            packages+=("$java")
        fi
        if ! has_mosquitto; then
            packages+=(mosquitto)
        fi
        apt_install "${packages[@]}" || say "apt-get did not succeed"
        if [[ " ${packages[*]} " == *" mosquitto "* ]] && [ -d /run/systemd/system ]; then
            as_root systemctl disable --quiet mosquitto 2>/dev/null || true # nor at the next start of the machine
        fi
    fi
    { has_java && has_mosquitto; } || fail "missing: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')." \
        "Debian/Ubuntu: apt install openjdk-21-jre-headless mosquitto (Debian 12: openjdk-17-jre-headless);" \
        "Fedora: dnf install java-21-openjdk-headless mosquitto; macOS: brew install openjdk@21 mosquitto"
}

# Programs that only tests run, each with the Debian package that has it.
for_tests=(kcat:kcat promtool:prometheus openssl:openssl git:git chromium:chromium)

# Prints the packages of those that are not there.
missing_for_tests() {
    local each
    for each in "${for_tests[@]}"; do
        command -v "${each%%:*}" >/dev/null || echo "${each#*:}"
    done
}

install_for_tests() {
    local packages
    mapfile -t packages < <(missing_for_tests)
    [ ${#packages[@]} -gt 0 ] || return 0
    if may_use_apt; then
        apt_install "${packages[@]}" || say "apt-get did not succeed"
        if [[ " ${packages[*]} " == *" prometheus "* ]] && [ -d /run/systemd/system ]; then
            as_root systemctl disable --quiet prometheus 2>/dev/null || true
        fi
    fi
    mapfile -t packages < <(missing_for_tests)
    [ ${#packages[@]} -eq 0 ] || fail "missing, and tests run it: ${packages[*]}." \
        "Debian/Ubuntu: apt install ${packages[*]}; Fedora: dnf install kcat openssl git chromium, and promtool from prometheus.io;" \
        "macOS: brew install kcat prometheus openssl git chromium"
}

# What the first run of the tests would make otherwise, while its workers wait or each do the same.
prepare_tests() {
    say "compiling the tests, and making the archive of Spark's classes (about a minute; once)"
    .venv/bin/python -m pytest --collect-only -q >/dev/null &
    .venv/bin/python -c '
from fairlead.jars import ensure_jars, find_java
from shore.quickstart import archive_option
archive_option(find_java(), ensure_jars("delta"))'
    wait $!
}

if [ "${1:-}" = tests ]; then
    install_for_tests
    prepare_tests
    exit
fi
make_venv
install_packages
install_programs
say "ready"
