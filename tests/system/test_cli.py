"""Commands as an interface: what they print, what they import, what they exit with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from aaco.cli import app

HEAVY = ("numpy", "pyarrow", "duckdb", "onnx", "onnxruntime", "pydantic", "rich", "jinja2", "scipy", "yaml")


def imported_by(*arguments):
    code = ("import sys\nsys.argv = ['aaco', *sys.argv[1:]]\nfrom aaco.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("doctor", "--help")])
def test_help_imports_nothing_heavy(arguments):
    assert imported_by(*arguments).isdisjoint(HEAVY)


def test_info_and_doctor_import_no_runtime():
    assert imported_by("doctor").isdisjoint({"numpy", "pyarrow", "onnxruntime", "onnx", "duckdb", "scipy"})


def test_importing_the_package_imports_nothing_heavy():
    code = "import aaco, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()}.isdisjoint(HEAVY)


def test_the_measured_process_imports_only_what_it_runs():
    code = "import aaco.runner.worker, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name.partition(".")[0] for name in done.stdout.split()}
    assert found.isdisjoint({"pyarrow", "duckdb", "pydantic", "rich", "jinja2", "scipy", "click"})


@pytest.mark.parametrize("name", app.commands_table)
def test_every_command_has_help(aaco, name):
    assert aaco.inside(name, "--help").stdout.startswith("NAME\n  aaco " + name)


def test_version_and_rocm_perf(aaco):
    assert aaco("--version").stdout.startswith("aaco, version ")
    code = "from aaco.cli.rocm_perf import main; main()"
    for arguments, expect in ((["--version"], 0), (["--help"], 0), (["replay"], 2)):
        assert subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True).returncode == expect


def test_ls_filters_and_limits(recorded, aaco):
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    assert len(json.loads(aaco.inside("ls", "--json").stdout)["sessions"]) == 1  # latest is not listed twice
    assert json.loads(aaco.inside("ls", "--json", "--tag", "recorded").stdout)["sessions"]
    for wanted in (("--tag", "other"), ("--model", "resnet50"), ("--backend", "cuda")):
        assert not json.loads(aaco.inside("ls", "--json", *wanted).stdout)["sessions"]
    assert "gpt2-tiny" in aaco.inside("ls").stdout


def test_a_session_is_accepted_in_every_spelling(recorded):
    name = recorded.latest.name
    for reference in ("latest", name, name[:-3], "sessions/latest", recorded.latest):
        assert name in recorded.inside("report", reference).stdout
    assert name in recorded.inside("report", "--session", "sessions/latest").stdout
    assert name in recorded.inside("report").stdout


def test_reports_are_valid_in_every_form(recorded, tmp_path):
    document = json.loads(recorded.inside("report", "--format", "json").stdout)
    assert document["schema_version"] == 1
    assert recorded.inside("report", "--format", "markdown").stdout.startswith("# ")
    page = tmp_path / "page.html"
    recorded.inside("report", "--format", "html", "--output", page)
    assert page.read_text().startswith("<!doctype html>")
    assert page.stat().st_size < 1_000_000


def test_explain_by_name_alias_and_without_a_session(recorded, aaco):
    for name in ("kernel_amplification_ratio", "KAR", "kar"):
        assert "executed graph nodes" in recorded.inside("explain", name).stdout
    assert "kernel_amplification_ratio" in aaco.inside("explain", "KAR").stdout


def test_config_show_tells_origins(aaco):
    (aaco.folder / "aaco.yaml").write_text("storage: {max_sessions: 3}")
    rows = json.loads(aaco.inside("config", "show", "--json").stdout)["settings"]
    assert rows["storage.max_sessions"] == {"value": 3, "origin": "file aaco.yaml"}
    assert rows["storage.cache_dir"]["origin"] == "environment AACO_CACHE_DIR"
    (aaco.folder / "aaco.yaml").write_text("storage: {max_session: 3}")
    assert "did you mean 'max_sessions'" in aaco.inside("config", "show", expect=2).stderr


def test_gc_removes_what_it_said_and_keeps_a_baselines_sessions(recorded, aaco):
    root = aaco.folder / "sessions"
    shutil.copytree(recorded.folder / "sessions", root, symlinks=True)
    day = next(root.glob("2*"))
    original = next(day.iterdir())
    for index in range(3):
        name = f"20000101_00000{index}_aaaaaa"
        shutil.copytree(original, day / name)
        record = json.loads((original / "session.json").read_text()) | {"session_id": name}
        (day / name / "session.json").write_text(json.dumps(record))  # else it would be the same session
    (aaco.folder / "aaco.yaml").write_text("storage: {max_sessions: 1}")
    assert aaco.inside("gc", "--dry-run").stdout.count("beyond the newest 1") == 3
    assert len(list(day.iterdir())) == 4
    aaco.inside("baseline", "save", "kept", str(day / "20000101_000001_aaaaaa"))
    (day / "20000101_000001_aaaaaa").rename(day / "20000101_000001_renamed")  # mutation: only the folder's name asked
    aaco.inside("gc")
    assert {path.name for path in day.iterdir()} == {original.name, "20000101_000001_renamed"}


@pytest.mark.parametrize("where", ["default", "elsewhere"])
def test_gc_from_another_folder_knows_what_baselines_need(recorded, aaco, where):
    """Mutations: asking only the store that the settings name from here; only the one beside the sessions."""
    from tests.system.conftest import Aaco

    root = aaco.folder / "project" / "sessions"
    shutil.copytree(recorded.folder / "sessions", root, symlinks=True)
    day = next(root.glob("2*"))
    original = next(day.iterdir())
    for index in range(2):
        name = f"20000101_00000{index}_aaaaaa"
        shutil.copytree(original, day / name)
        record = json.loads((original / "session.json").read_text()) | {"session_id": name}
        (day / name / "session.json").write_text(json.dumps(record))
    project = Aaco(root.parent, aaco.cache)
    store = ("--baselines-dir", aaco.folder / "other" / "store") if where == "elsewhere" else ()
    project.inside("baseline", "save", "kept", "20000101_000001_aaaaaa", *store)
    (aaco.folder / "aaco.yaml").write_text("storage: {max_sessions: 1}")
    assert "removed 1 session" in aaco.inside("gc", "--sessions-dir", root).stdout
    assert {path.name for path in day.iterdir()} == {original.name, "20000101_000001_aaaaaa"}
    for path in aaco.folder.rglob("history.db"):
        path.write_text("{")  # a baseline that cannot be read may need it still
    aaco.inside("gc", "--sessions-dir", root, expect=2 if where == "default" else 0)
    assert (day / "20000101_000001_aaaaaa").is_dir()
    for path in aaco.folder.rglob("history.db"):
        path.unlink()
    assert "removed 1 session" in aaco.inside("gc", "--sessions-dir", root).stdout


HOSTILE = "\x1b[31mred\x1b]0;owned\x07\nsecond line\r\u202egnp.exe\x9b1m" + "名" * 30


def test_no_text_of_a_session_steers_the_terminal(recorded, aaco):
    """Whatever command shows it. Mutation: printing a tag as it is."""
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    record = json.loads((aaco.latest / "session.json").read_text())
    record |= {"tag": HOSTILE, "failure": HOSTILE, "backend_ran": HOSTILE, "status": "failed"}
    record["plan"] |= {"model": HOSTILE, "backend": HOSTILE}
    (aaco.latest / "session.json").write_text(json.dumps(record))
    meta = json.loads((aaco.latest / "model/model_meta.json").read_text()) | {"name": HOSTILE, HOSTILE: HOSTILE}
    (aaco.latest / "model/model_meta.json").write_text(json.dumps(meta))
    environment = json.loads((aaco.latest / "env.json").read_text()) | {HOSTILE: HOSTILE}
    (aaco.latest / "env.json").write_text(json.dumps(environment))
    strange = aaco.latest.parent / f"20990101_{HOSTILE[:20]}"
    shutil.copytree(aaco.latest, strange)
    (strange / "env.json").write_text("{}")
    (aaco.folder / "aaco.yaml").write_text("storage: {max_sessions: 1}")
    for command in (("ls",), ("info", "latest"), ("gc", "--dry-run"), ("report",), ("explain", "KAR"), ("kernels",),
                    ("env", "diff", "latest", strange), ("baseline", "list"), ("check",), ("report", strange),
                    ("report", "--format", "markdown"), ("ls", "--json"), ("report", "--format", "json")):
        done = aaco.inside(*command)
        for line in (done.stdout + done.stderr).split("\n"):
            assert line.isprintable(), (command, line)
        assert "\nsecond line" not in done.stdout
    for command in (("baseline", "save", "b"), ("diff", "latest", strange), ("report", HOSTILE + "x"),
                    ("explain", HOSTILE)):
        said = aaco.inside(*command, expect=2).stderr
        assert said.count("\n") == 2 and all(line.isprintable() for line in said.split("\n")), said


def test_env_diff_of_a_session_with_itself_is_empty(recorded):
    assert json.loads(recorded.inside("env", "diff", "latest", "latest", "--json").stdout)["differences"] == []


def test_models_lists_both_registries(aaco):
    text = aaco.inside("models").stdout
    assert "resnet50" in text and "MIGraphXExecutionProvider" in text


def test_output_piped_into_head_is_no_error(recorded):
    line = f"{sys.executable} -m aaco report | head -1"
    done = subprocess.run(["bash", "-c", line], cwd=recorded.folder, env=recorded.environment(), capture_output=True,
                          text=True)
    assert done.stderr == ""


def test_secrets_of_the_environment_stay_out_of_the_bundle(aaco):
    aaco.inside("run", "gpt2-tiny", "--iterations", 3, "--warmup", 0, "--quiet", AWS_SECRET_ACCESS_KEY="pLaNtEd1",
                HF_TOKEN="pLaNtEd2", OMP_SECRET="pLaNtEd3", NCCL_TOKEN="pLaNtEd4")
    for path in aaco.latest.rglob("*"):
        assert path.is_dir() or b"pLaNtEd" not in path.read_bytes(), path


def test_adaptive_stop_and_budget(aaco):
    aaco.inside("run", "gpt2-tiny", "--iterations", 100_000, "--budget", 1.0, "--no-profile", "--quiet")
    passes = json.loads((aaco.latest / "runtime/ort_config.json").read_text())["passes"]
    assert passes[0]["stopped_by"] == "budget"
    manifest = json.loads((aaco.latest / "manifest.json").read_text())
    assert "--no-profile" in manifest["absent"]["profiler/rocprof_kernels.parquet"]


def files_of(folder):
    return {path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in folder.rglob("*") if path.is_file()}


def test_a_diff_writes_its_verdict_the_report_and_the_manifest_and_nothing_else(recorded, aaco):
    """Mutation: sealing the whole bundle anew instead, which derives and writes every table again."""
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    aaco.inside("baseline", "save", "one")
    before = files_of(aaco.latest)
    aaco.inside("diff", "one")
    after = files_of(aaco.latest)
    written = {name for name in after if after[name] != before.get(name)}
    answers = {"regress/baseline_ref.json", "regress/diff.json", "regress/verdict.json", "manifest.json"}
    assert answers <= written <= answers | {name for name in after if name.startswith("report/")}
    facts = json.loads(aaco.inside("info", "latest", "--json").stdout)
    assert facts["damaged"] == {}
    assert "regress/verdict.json" in facts["files"] and "regress/verdict.json" not in facts["absent"]
    page = (aaco.latest / "report/report.html").read_text()
    assert "this session was not compared" not in page and "aaco diff --baseline one" in page
    assert json.loads(aaco.inside("report", "--format", "json").stdout)["verdict"]["baseline_name"] == "one"


def test_a_diff_that_was_killed_among_its_own_files_can_be_given_again(recorded, aaco):
    """Mutation: refusing any difference from the manifest, so that one kill ends all comparing."""
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    aaco.inside("baseline", "save", "one")
    before = (aaco.latest / "manifest.json").read_bytes()
    aaco.inside("diff", "one")
    (aaco.latest / "manifest.json").write_bytes(before)  # it was killed before it wrote this, its last file
    assert "regress/verdict.json" in json.loads(aaco.inside("info", "latest", "--json").stdout)["damaged"]
    aaco.inside("diff", "one", "--threshold", "7%")
    assert json.loads(aaco.inside("info", "latest", "--json").stdout)["damaged"] == {}


def test_a_variable_that_nothing_reads_is_told(aaco):
    """Mutation: somebody's own, such as a token, told by every command."""
    done = aaco.inside("models", AACO_OUTPUT_DIR="x", AACO_API_KEY="y")
    assert done.stderr == "warning: AACO_OUTPUT_DIR is read by nothing here; did you mean AACO_SESSION_DIR?\n"
    shown = json.loads(aaco.inside("config", "show", "--json", AACO_API_KEY="y").stdout)
    assert shown["unread_variables"] == ["AACO_API_KEY"]
    assert "AACO_API_KEY                  read by nothing" in aaco.inside("config", "show", AACO_API_KEY="y").stdout
