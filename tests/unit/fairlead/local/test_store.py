"""The store of jars: fetched once, verified, never half a file."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.jars import store
from fairlead.jars.lock import Jar, JarSet

CONTENT = {"a": b"first", "b": b"second"}
JARS = tuple(Jar("org.example", name, "1.0", hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items())


class Repository:
    """Stands for the download; counts what was asked for."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[list[str]] = []

    def retrieve(self, jars: Iterable[Jar], folder: Path) -> dict[Path, Jar]:
        wanted = list(jars)
        self.asked.append([jar.name for jar in wanted])
        found: dict[Path, Jar] = {}
        for jar in wanted:
            if jar.name in self.content:
                file = folder / f"{jar.name}.jar"
                file.write_bytes(self.content[jar.name])
                found[file] = Jar(jar.organisation, jar.name, jar.revision)
        return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path))
    monkeypatch.setattr(store, "jar_set", lambda name: JarSet(name, (), False, JARS))
    return tmp_path


def test_fetched_once(cache: Path) -> None:
    repository = Repository(CONTENT)
    said: list[str] = []
    files = store.ensure_jars("kafka", retrieve=repository.retrieve, on_progress=said.append)
    assert [file.read_bytes() for file in files] == list(CONTENT.values())
    assert said == ["fetching 2 kafka jars"]
    assert store.ensure_jars("kafka", retrieve=repository.retrieve, on_progress=said.append) == files
    assert repository.asked == [["a", "b"]]
    assert len(said) == 1


def test_a_set_of_another_lock_file_is_fetched_into_the_same_store(cache: Path) -> None:
    repository = Repository(CONTENT)
    older = JarSet("kafka-39", (), True, JARS[:1])
    said: list[str] = []
    [file] = store.ensure_jars(older, retrieve=repository.retrieve, on_progress=said.append)
    assert file.read_bytes() == CONTENT["a"] and said == ["fetching 1 kafka-39 jars"]
    assert store.ensure_jars("kafka", retrieve=repository.retrieve)[0] == file
    assert repository.asked == [["a"], ["b"]]


def test_packages_are_fetched_once_and_kept_by_their_names(cache: Path) -> None:
    repository = Repository(CONTENT)
    files = store.ensure_packages(["org.example:a:1.0", "org.example:b:1.0"], retrieve=repository.retrieve)
    assert [file.name for file in files] == ["org.example.a-1.0.jar", "org.example.b-1.0.jar"]
    assert [file.read_bytes() for file in files] == list(CONTENT.values())
    again = store.ensure_packages(["org.example:b:1.0", "org.example:a:1.0"], retrieve=repository.retrieve)
    assert again == files
    assert store.ensure_packages(["org.example:a:1.0"], retrieve=repository.retrieve) != files
    assert repository.asked == [["a", "b"], ["a"]]
    assert store.ensure_packages([]) == ()


def test_packages_that_cannot_be_fetched_leave_nothing_behind(cache: Path) -> None:
    def fail(jars: Iterable[Jar], folder: Path) -> dict[Path, Jar]:
        raise UnavailableError("no network", hint="")

    with pytest.raises(UnavailableError):
        store.ensure_packages(["org.example:a:1.0"], retrieve=fail)
    files = store.ensure_packages(["org.example:a:1.0"], retrieve=Repository(CONTENT).retrieve)
    assert [file.read_bytes() for file in files] == [CONTENT["a"]]


def test_only_what_is_missing_is_fetched(cache: Path) -> None:
    repository = Repository(CONTENT)
    files = store.ensure_jars("kafka", retrieve=repository.retrieve)
    files[1].unlink()
    store.ensure_jars("kafka", retrieve=repository.retrieve)
    assert repository.asked == [["a", "b"], ["b"]]


def test_a_damaged_jar_is_replaced(cache: Path) -> None:
    repository = Repository(CONTENT)
    files = store.ensure_jars("kafka", retrieve=repository.retrieve)
    files[0].write_bytes(b"damaged")
    assert store.ensure_jars("kafka", retrieve=repository.retrieve)[0].read_bytes() == CONTENT["a"]
    assert repository.asked == [["a", "b"], ["a"]]


def test_a_copied_cache_is_verified_not_fetched(cache: Path) -> None:
    repository = Repository(CONTENT)
    store.ensure_jars("kafka", retrieve=repository.retrieve)
    (cache / "jars" / "verified.json").unlink()
    store.ensure_jars("kafka", retrieve=repository.retrieve)
    assert len(repository.asked) == 1


def test_other_content_than_the_lock_says_is_refused(cache: Path) -> None:
    with pytest.raises(UnavailableError, match=r"org\.example:a:1\.0 .* is not what jars\.lock says"):
        store.ensure_jars("kafka", retrieve=Repository({**CONTENT, "a": b"changed on the way"}).retrieve)
    assert not list(cache.glob("**/a-1.0.jar"))
    store.ensure_jars("kafka", retrieve=Repository(CONTENT).retrieve)  # and nothing stands in the way afterwards


def test_a_jar_that_does_not_come_is_named(cache: Path) -> None:
    with pytest.raises(UnavailableError, match=r"did not come: org\.example:b:1\.0"):
        store.ensure_jars("kafka", retrieve=Repository({"a": CONTENT["a"]}).retrieve)
    assert [file.name for file in cache.glob("**/*.jar")] == ["a-1.0.jar"]  # what came is kept
    assert not list(cache.glob("jars/.download-*"))


def test_several_at_once_fetch_once(cache: Path) -> None:
    repository = Repository(CONTENT)
    together = threading.Barrier(4)

    def ensure(_: int) -> tuple[Path, ...]:
        together.wait()
        return store.ensure_jars("kafka", retrieve=repository.retrieve)

    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(ensure, range(4)))
    assert len(results) == 1
    assert repository.asked == [["a", "b"]]


def test_a_full_cache_is_said(cache: Path) -> None:
    (cache / "jars").mkdir()
    (cache / "jars" / ".verified.json.new").symlink_to("/dev/full")
    with pytest.raises(UnavailableError, match=r"jars cannot be kept in .*: No space left on device") as caught:
        store.ensure_jars("kafka", retrieve=Repository(CONTENT).retrieve)
    assert "FAIRLEAD_CACHE" in caught.value.hint
