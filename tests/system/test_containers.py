"""The Dockerfiles and the composition: linted, without rights or secrets, and one of them built where no engine is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import images, installed

ROOT = installed.ROOT
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
# https://github.com/compose-spec/compose-spec/blob/main/spec.md, as far as ours goes
OF_A_SERVICE = {"image", "build", "user", "restart", "read_only", "cap_drop", "security_opt", "tmpfs", "command",
                "ports", "volumes", "secrets"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dockerfile_passes_the_linter(path):
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), "--failure-threshold", "info", path], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_image_is_pinned_hashed_and_runs_as_nobody_special(path):
    """Mutations: the last USER taken out; --require-hashes left out; a base without a tag."""
    found = images.instructions(path)
    last = len(found) - 1 - [word for word, _ in found][::-1].index("FROM")
    users = [rest for word, rest in found[last:] if word == "USER"]
    assert users and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert re.fullmatch(r"BASE=[\w./-]+:[\w.-]*\d[\w.-]*", found[0][1])
    (locked,) = [rest for word, rest in found if word == "RUN" and "--requirement" in rest]
    assert f"--require-hashes --requirement docker/{path.stem}.lock" in locked
    assert not re.search(r"(?i)(password|token|secret)\s*=", path.read_text())
    assert not [rest for word, rest in found if word == "RUN" and re.search(r"curl|wget|\bsudo\b|chmod 777", rest)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_lock_has_hashes_and_the_versions_of_the_tests(path):
    """The images install what was tested, and one ONNX Runtime."""
    text, tested = path.with_suffix(".lock").read_text(), (ROOT / "requirements-dev.lock").read_text()
    found, known = (set(re.findall(r"^([a-z0-9._-]+)==(\S+)", lock, re.MULTILINE)) for lock in (text, tested))
    names = {name for name, _ in found}
    assert text.count("--hash=sha256:") >= len(found) > 20 and "://" not in text
    assert {name for name, _ in found - known} & {name for name, _ in known} == set()
    runtimes = {"cpu": "onnxruntime", "cuda": "onnxruntime-gpu", "rocm": "onnxruntime-migraphx"}
    assert {name for name in names if name.startswith("onnxruntime")} == {runtimes[path.stem]}
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[>=<\[]", each)[0] for each in wanted} | {"tree-sitter", "tree-sitter-cpp"} <= names


def test_the_composition_has_no_secrets_no_rights_and_listens_on_this_machine():
    """Mutations: a token in the environment; a port for the whole network."""
    assert set(COMPOSE) == {"name", "x-service", "services", "secrets"}
    assert set(COMPOSE["services"]) == {"dashboard", "api"}
    for name, service in COMPOSE["services"].items():
        assert set(service) <= OF_A_SERVICE and "environment" not in service, name
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True
        assert service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service
        assert service["user"].rpartition("-")[2].rstrip("}") == "10001:10001"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert (ROOT / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for secret in service["secrets"]:
            assert service["command"][service["command"].index("--tokens") + 1] == f"/run/secrets/{secret}"
            assert set(COMPOSE["secrets"][secret]) == {"file"}
    ignored = subprocess.run(["git", "check-ignore", "secrets/readers", "secrets/callers"], cwd=ROOT, text=True,
                             capture_output=True)
    assert len(ignored.stdout.split()) == 2, "a secret would be committed"


def test_what_the_composition_calls_is_a_command(tmp_path):
    """The words of each service, with a file of tokens in the secret's place: refused for nothing but its content."""
    from aaco import cli

    for service in COMPOSE["services"].values():
        words = service["command"]
        (tmp_path / "tokens").write_text("")
        (tmp_path / "tokens").chmod(0o600)
        done = subprocess.run([sys.executable, "-m", "aaco", *words[:words.index("--tokens")], "--tokens", "tokens"],
                              cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 2 and "no token in it" in done.stderr
        assert words[0] in cli.app.commands_table


@pytest.mark.timeout(400)
def test_the_image_for_cpus_is_built_and_runs(tmp_path):
    """Every step of the file, and then the image as its user. Mutations: a COPY that forgets the licence; a USER that
    cannot read the environment."""
    if reason := images.why_not():
        pytest.skip(f"no image can be built here: {reason}")
    folder = images.context(installed.tree(tmp_path / "tree"), tmp_path / "context")
    for name in ("work", "cache"):
        (tmp_path / name).mkdir()
    built = images.script(ROOT / "docker/cpu.Dockerfile", tmp_path / "cache", [
        ["--version"], ["doctor", "--full"], ["run", "gpt2-tiny", "--iterations", "5", "--no-profile", "--quiet"],
        ["ls"]])
    done = subprocess.run(["unshare", "--mount", "bash", "-c", built, "build", folder, tmp_path / "work"], text=True,
                          capture_output=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert "CPUExecutionProvider       yes" in done.stdout and "gpt2-tiny" in done.stdout.splitlines()[-1]
    assert not list((tmp_path / "work").iterdir())
