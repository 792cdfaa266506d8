"""Credentials that are planted everywhere, counted where they come out; and innocent lines that must stay as they are.

    python -m benchmarks.redaction [--json FILE]

A canary is a text of a credential's shape, or under the name of one. They are planted in every text of every JSON
document that has a published schema and of every table, in the command lines, tags, names, models, git branches and
captures of real `run`, `profile`, `trace` and `import`, and in the stored documents of a session as an older version
may have left them. Everything that comes out is searched: all files of the sessions, what the commands print, reports
in every form, each GET route of the API, bundles. Bars: none of at least 100 canaries is seen, none of at least 200
innocent lines is changed. A table and JSON are printed; the exit code is 1 where a bar is missed. It wants the test
environment.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pyarrow as pa
import pyarrow.parquet as pq

from aaco.core import documents, tables
from aaco.core.redaction import redact
from aaco.core.redaction.columns import redact_column
from aaco.core.redaction.command_line import redact_command
from aaco.core.session import Session
from aaco.report.docs import schemas
from aaco.tracelake import manifest, store
from aaco.tracelake.ingest.lake import Writer
from tests import csvs, models, serving
from tests.fakes import rocprofv3
from tests.system.conftest import Aaco
from tests.unit.test_rocprofv3_csv import KERNEL, kernel

PLANTED = re.compile(rb"c4nary\d{6}", re.IGNORECASE)
# What issuers give, of a core that is found again. Put together here, so that no scanner takes this file for a leak.
SHAPES: tuple[Callable[[str], str], ...] = (
    lambda core: f"AK{'IA'}{core.upper()}ABCD", lambda core: f"gh{'p_'}{core}{'x' * 24}",
    lambda core: f"h{'f_'}{core}{'y' * 22}", lambda core: f"s{'k-'}{core}{'z' * 12}",
    lambda core: f"xox{'b-'}12345-{core}", lambda core: f"glp{'at-'}{core}{'w' * 12}",
    lambda core: f"AI{'za'}{core}{'v' * 23}", lambda core: f"np{'m_'}{core}{'u' * 24}",
    lambda core: f"ey{'J'}{core}.ey{'J'}{core}.sig")
TEXTS: tuple[Callable[[str], str], ...] = (
    *SHAPES, lambda core: f"password={core}", lambda core: f"see https://me:{core}@host/x",
    lambda core: f"Authorization: Bearer {core}", lambda core: f"api_key: {core}", lambda core: f"tool --token {core}",
    lambda core: f"tool --pw {core}", lambda core: f"mysql -p{core} x", lambda core: f"HF_TOKEN={core}",
    lambda core: json.dumps({"secret": core}), lambda core: f"curl -u me:{core}")
WORDS: tuple[Callable[[str], list[str]], ...] = (
    lambda core: ["--pw", core], lambda core: [f"--pw={core}"], lambda core: [f"-p{core}"], lambda core: ["-pw", core],
    lambda core: ["--password", core], lambda core: [f"--pass={core}"], lambda core: ["-u", f"me:{core}"],
    lambda core: [f"HF_TOKEN={core}"], lambda core: ["--api-key", core], lambda core: [f"ftp://me:{core}@host/"],
    lambda core: ["-H", f"Authorization: Bearer {core}"], lambda core: ["sh", "-c", f"mysql -p{core} < x"],
    *((lambda core, shape=shape: [shape(core)]) for shape in SHAPES))
ANSWERED = 15  # routes, of a session that has few tables
SHOW = "import sys; print(sys.argv[1:]); print('password=' + sys.argv[-1], file=sys.stderr)"


class Canaries:
    """Gives canaries, each of its own, the kinds in turn; counts them."""

    def __init__(self) -> None:
        self.count = 0
        self._turns = {kind: itertools.cycle(kind) for kind in (SHAPES, TEXTS, WORDS)}

    def _next(self, kind: Any) -> Any:
        self.count += 1
        return next(self._turns[kind])(f"c4nary{self.count:06d}")

    def shape(self) -> str:
        """One that may be in a name of a file or branch."""
        return str(self._next(SHAPES))

    def text(self) -> str:
        """One of any kind."""
        return str(self._next(TEXTS))

    def words(self) -> list[str]:
        """Words of a command line."""
        return list(self._next(WORDS))


def seen(content: bytes) -> set[bytes]:
    """Return the canaries in a content."""
    return {core.lower() for core in PLANTED.findall(content)}


def seen_in(folder: Path) -> set[bytes]:
    """Return the canaries in the names and contents of all files, unpacked where they are zipped or tables."""
    cores = set[bytes]()
    for path in folder.rglob("*"):
        cores |= seen(str(path.relative_to(folder)).encode())
        if path.is_file():
            cores |= seen(_content(path))
    return cores


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        return gzip.decompress(raw)
    return json.dumps(pq.read_table(path).to_pydict(), default=str).encode() if path.suffix == ".parquet" else raw


# --- every document and table -----------------------------------------------------------------------------------------

def filled(schema: dict[str, Any], root: dict[str, Any], canaries: Canaries) -> Any:
    """Return a document of the schema, with a canary in every text and every free name."""
    if "$ref" in schema:
        return filled(root["$defs"][schema["$ref"].rpartition("/")[2]], root, canaries)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [kind for kind in schema[several] if kind.get("type") != "null"]
            texts = [kind for kind in kinds if kind.get("type") == "string"]
            return filled((texts or kinds)[0], root, canaries)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        named = {name: filled(part, root, canaries) for name, part in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        free = filled(more if isinstance(more, dict) else {}, root, canaries) if more is not False else None
        return named | ({} if more is False else {canaries.text(): free})
    if kind == "array":
        return [filled(schema.get("items") or {}, root, canaries)]
    return {"integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind)) or canaries.text()


def of_documents(folder: Path, canaries: Canaries) -> set[bytes]:
    """Write every declared document with a canary in each text; what is seen in the files."""
    session = Session.create(folder / "sessions", {"model": canaries.text()}, canaries.text(), "0")
    for file, declaration in schemas.declared().items():
        schema = documents.schema_of(declaration.type)
        session.write_json(file, filled(schema, schema, canaries))
    return seen_in(session.folder)


def of_tables(folder: Path, canaries: Canaries) -> set[bytes]:
    """Write every table with a canary in each text column, as a run does and as an import does."""
    cores = set[bytes]()
    for way in (_stored, _imported):
        session = Session.create(folder / "sessions", {"model": "m"}, "", "0")
        for spec in tables.ALL.values():
            way(session, spec.build(**{name: [_cell(kind, canaries)] for name, (kind, _) in spec.columns.items()}))
        cores |= seen_in(session.folder)
    return cores


def _cell(kind: pa.DataType, canaries: Canaries) -> Any:
    if pa.types.is_list(kind):
        return [_cell(kind.value_type, canaries)]
    number = 1 if pa.types.is_integer(kind) or pa.types.is_floating(kind) else True
    return canaries.text() if kind in (tables.TEXT, tables.NAME) else number


def _stored(session: Session, table: pa.Table) -> None:
    store.write(session, tables.ALL[table.schema.metadata[b"aaco.table"].decode()], table)


def _imported(session: Session, table: pa.Table) -> None:
    if "capture" in table.column_names:
        with Writer(session) as writer:
            writer.add(table, 0)
            writer.write([None])


# --- real commands ----------------------------------------------------------------------------------------------------

def of_run(aaco: Aaco, canaries: Canaries) -> bytes:
    """Run a model with canaries in its names, in its file's name, in the tag and in the branch that it is run in."""
    branch = f"work/{canaries.shape()}"
    subprocess.run(["git", "init", "-q", "-b", branch, aaco.folder], check=True)
    subprocess.run(["git", "-C", aaco.folder, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q",
                    "--allow-empty", "-m", "x"], check=True)
    path = aaco.folder / f"{canaries.shape()}.onnx"
    model = onnx.load(models.chain(aaco.folder / "plain.onnx"))
    model.producer_name, model.producer_version, model.domain = (canaries.text() for _ in range(3))
    model.doc_string, model.graph.doc_string, model.graph.name = (canaries.text() for _ in range(3))
    model.metadata_props.add(key=canaries.text(), value=canaries.text())
    for node in model.graph.node:
        node.name, node.doc_string = canaries.text(), canaries.text()
    middle, renamed = model.graph.node[0].output[0], canaries.text()
    model.graph.node[0].output[0] = renamed
    for node in model.graph.node:
        node.input[:] = [renamed if name == middle else name for name in node.input]
    onnx.save(model, path)
    return _printed(aaco, "run", path, "--warmup", 1, "--iterations", 20, "--tag", canaries.text())


def of_profile(aaco: Aaco, canaries: Canaries) -> bytes:
    """Profile a command with canaries among its words, which it repeats."""
    words = [word for _ in WORDS for word in canaries.words()]
    return _printed(aaco, "profile", "--warmup", 0, "--runs", 1, "--lab", "none", "--tag", canaries.text(), "--",
                    sys.executable, "-c", SHOW, *words)


def of_trace(aaco: Aaco, canaries: Canaries) -> bytes:
    """Trace a command with canaries among its words and in what its profiler writes."""
    names = [kernel(number, 100 * number, 100 * number + 50, canaries.text())  # type: ignore[no-untyped-call]
             for number in range(1, 9)]
    trace = csvs.write(aaco.folder / "trace.csv", [KERNEL, *names])
    rocprofv3.install(aaco.folder, {"trace": [{"kernel_trace.csv": trace}]})
    words = [word for _ in WORDS for word in canaries.words()]
    return _printed(aaco, "trace", "--tag", canaries.text(), "--", "echo", *words,
                    PATH=f"{aaco.folder / 'bin'}:/usr/bin:/bin")


def of_import(aaco: Aaco, canaries: Canaries) -> bytes:
    """Import a capture with canaries in every name, argument and fact of it, in its file's name, and in the options."""
    def event(number: int, category: str, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": canaries.text(), "pid": number % 2, "tid": 7, "ts": 10 * number,
                "dur": 5, "args": {"correlation": number, "External id": number, "device": 0, "stream": 7,
                                   canaries.text(): canaries.text(), "kernel_file": canaries.text()}, **more}

    categories = ("kernel", "cpu_op", "cuda_runtime", "user_annotation", "gpu_memcpy", "python_function")
    events = [event(number, category) for number, category in enumerate(categories * 4, 1)]
    labels = [{"ph": "M", "name": name, "pid": 0, "tid": 7, "ts": 0, "args": {"name": canaries.text(),
               "labels": canaries.text()}} for name in ("process_name", "process_labels", "thread_name")]
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": canaries.text(), "computeMajor": 9}],
                "hostname": canaries.text(), "backend": canaries.text(), "version": canaries.text(),
                "distributedInfo": {"backend": canaries.text(), "rank": 0, "pg_config": canaries.text()},
                "traceName": canaries.text(), "traceEvents": [*labels, *events]}
    path = aaco.folder / f"{canaries.shape()}.json"
    path.write_text(json.dumps(document))
    return _printed(aaco, "import", "--keep", "--as", canaries.text(), "--tag", canaries.text(), path)


def as_older(aaco: Aaco, canaries: Canaries) -> bytes:
    """Plant canaries in the free texts of the documents of a sealed session, as an older version may have left them."""
    before = aaco.inside("run", "--model", models.chain(aaco.folder / "old.onnx"), "--warmup", 1, "--iterations", 20)
    places: dict[str, tuple[tuple[str, ...], ...]] = {
        "session.json": (("tag",), ("failure",), ("backend_ran",), ("plan", "model")),
        "env.json": (("kernel", "release"), ("cpu", "model")),
        "model/model_meta.json": (("producer",), ("graph_name",)),
        "runtime/ort_config.json": (("backend",),)}
    for file, paths in places.items():
        document = json.loads((aaco.latest / file).read_text())
        for *outer, last in paths:
            part = document
            for name in outer:
                part = part[name]
            part[last] = canaries.text()
        (aaco.latest / file).write_text(json.dumps(document))
    manifest.write(Session.open(aaco.latest), {})
    return before.stdout.encode()


def _printed(aaco: Aaco, *words: object, **more: str) -> bytes:
    """What a command prints that does its work; `check` may find faults."""
    done = aaco.inside(*words, expect=(0, 3, 4) if words[0] == "check" else 0, **more)
    return f"{done.stdout}{done.stderr}".encode()


# --- what comes out ---------------------------------------------------------------------------------------------------

def outlets(aaco: Aaco) -> dict[str, set[bytes]]:
    """Return the canaries that each outlet of the newest session shows."""
    session = Session.open(aaco.latest)
    return {"report": _of_reports(aaco, session), "API": _of_api(aaco, session), "bundle": _of_bundle(aaco, session)}


def _of_reports(aaco: Aaco, session: Session) -> set[bytes]:
    forms = [("report", session.folder, "--format", form) for form in ("terminal", "json", "markdown", "html")]
    others = [("info", session.folder), ("ls",), ("ls", "--json"), ("check", session.folder)]
    return seen(b"".join(_printed(aaco, *words) for words in (*forms, *others)))


def _of_api(aaco: Aaco, session: Session) -> set[bytes]:
    client = serving.client(aaco.folder)
    routes = client.get("/api/openapi.json").json()["paths"]
    cores, answered = set[bytes](), 0
    for route in [route for route, verbs in routes.items() if "get" in verbs and "live" not in route
                  and "events" not in route]:
        for name in tables.ALL if "{name}" in route else [""]:
            answer = client.get(route.replace("{session_id}", session.id).replace("{name}", name))
            cores |= seen(answer.content)
            answered += answer.status_code == 200
    if answered < ANSWERED:
        raise AssertionError(f"only {answered} routes answered")
    pages = ("", "/report", "/kernels", "/timeline")
    return cores.union(*(seen(client.get(f"/sessions/{session.id}{page}").content) for page in pages),
                       seen(client.get("/").content))


def _of_bundle(aaco: Aaco, session: Session) -> set[bytes]:
    packed = aaco.folder / "shared"
    printed = b"".join(_printed(aaco, "bundle", "export", session.folder, "-o", f"{packed}{suffix}")
                       for suffix in (".tar.zst", ".html"))
    printed += _printed(aaco, "bundle", "import", f"{packed}.tar.zst", "--sessions-dir", packed)
    if not packed.exists():
        raise AssertionError(printed.decode())
    return seen(printed) | seen_in(packed) | seen(packed.with_suffix(".html").read_bytes())


WRITTEN = {"documents": of_documents, "tables": of_tables}
SURFACES: dict[str, Callable[[Aaco, Canaries], bytes]] = {
    "run": of_run, "profile": of_profile, "trace": of_trace, "import": of_import, "older session": as_older}


def measure(folder: Path, surface: str) -> dict[str, Any]:
    """Return how many canaries were planted in a surface, and which came out where."""
    canaries = Canaries()
    if surface in WRITTEN:
        out_by_place = {"files": WRITTEN[surface](folder, canaries)}
    else:
        aaco = Aaco(folder, folder / "cache")
        out_by_place = {"printed": seen(SURFACES[surface](aaco, canaries)), **outlets(aaco)}
        if surface != "older session":  # whose files hold what was planted
            out_by_place["files"] = seen_in(folder / "sessions")
    return {"surface": surface, "planted": canaries.count,
            "out": {place: sorted(map(bytes.decode, out)) for place, out in out_by_place.items()}}


# --- innocent lines ---------------------------------------------------------------------------------------------------

COMMANDS = (
    "server -p8080", "docker run -p8080:80 image", "ssh -p 22 host", "gcc -pthread a.c", "gcc -pipe -O2 a.c",
    "gcc -pedantic a.c", "gcc -pg a.c", "tool --pwd-dir /work", "tool --pwd-dir=/work", "mkdir -p /tmp/x", "ls -p /x",
    "train --max-tokens 128", "train --max-tokens=128", "serve --tokenizer bert-base", "serve --tokenizer-mode auto",
    "train --keyframes 5", "train --passes 3", "serve --kv-cache-dtype fp8", "serve --key-cache fp8", "x -pfp16",
    "x -pint8", "x -pbf16", "x -pfloat32", "ffmpeg -pix_fmt yuv420p", "x -profile:v high", "x -port8080", "x -p0.5",
    "serve --model meta-llama/Llama-3.1-8B-Instruct", "serve --model Qwen/Qwen2.5-Coder-32B-Instruct-AWQ",
    "torchrun --rdzv-endpoint=localhost:29400 --nproc-per-node 8 t.py", "x --author me", "x --monkey 3", "x -Pn",
    "x --compass north", "x --keep-alive 30", "x --passthrough", "x --bypass 1", "x --shape x=1x3x224x224", "print",
    "python3 -c print(sum(range(1000)))", "docker run -u 1000:1000 image:tag", "x --seed 123456789012345", "x -print",
    "rocprofv3 --kernel-trace --output-format rocpd -- prog", "curl http://host:8080/a", "git@host:org/repo", "x -p")
NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>(int)",
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18Te",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI16x16x16x1_SN_1LDSB1_AFC1_AFEM1_ASEM8_CLR1_EPS1_FL0_GRVW8_GSU1_IU1_K1",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "triton_poi_fused_add_0d1d2d3de4de",
    "flash_fwd_splitkv_combine_key_kernel<true, 64>", "token_softmax_reducev_fwd", "query_key_value", "next_token: 5",
    '{"eos_token": "</s>", "pad_token_id": 0}', "tokens_per_s: 31.5", "image@sha256:" + "9f86d081" * 8, "key=value",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "Basic operations", "a=b==",
    '{"password": null}', "http://host:8080/a@b", "sk-learn", "bearer of news", "use_auth_token=false", "pw=2, ph=2")


def innocents() -> tuple[list[str], list[str]]:
    """Return innocent command lines, and innocent texts of captures; the same ones each time."""
    draw = random.Random(24)

    def base64_like() -> str:
        return "k_" + "".join(draw.choices("ABCDEFGHIJabcdefghij0123456789", k=40))

    def mangled() -> str:
        parts = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(3, 20))) for _ in range(draw.randint(3, 60))]
        return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}ILi{draw.randint(1, 999)}EEEvT_"

    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(40)]
    ids = [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(30)]
    git = [digest[:40] for digest in digests]
    symbols = [mangled() for _ in range(40)]
    named = [*symbols, *NAMES[1:5]]
    commands = [*COMMANDS, *(f"x --revision {digest}" for digest in git), *(f"x --run-id={one}" for one in ids),
                *(f"x --kernel {symbol}" for symbol in named), *(f"x sha256:{digest}" for digest in digests)]
    return commands, [*NAMES, *commands, *symbols, *digests, *ids, *(base64_like() for _ in range(40))]


def changed() -> Iterator[str]:
    """Yield the innocent lines that redaction changes."""
    commands, texts = innocents()
    yield from (line for line in commands if redact_command(line.split()).words != line.split())
    yield from (text for text in texts if redact(text) != text)
    column = pa.chunked_array([texts])
    clean = redact_column(column).to_pylist()
    yield from (text for text, kept in zip(texts, clean, strict=True) if text != kept)


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redaction", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    path = parser.parse_args().json
    rows = []
    for surface in (*WRITTEN, *SURFACES):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Path(folder), surface))
    lines, spoilt = len(set(itertools.chain(*innocents()))), sorted(set(changed()))
    for row in rows:
        out = {place: cores for place, cores in row["out"].items() if cores}
        print(f"{row['surface']:14} {row['planted']:5} canaries planted  {out or 'none out'}")
    planted, out_count = sum(row["planted"] for row in rows), sum(len(o) for row in rows for o in row["out"].values())
    met = {"0 of >= 100 canaries out": out_count == 0 and planted >= 100,
           ">= 200 innocent lines unchanged": not spoilt and lines >= 200}
    print(f"{out_count} of {planted} canaries out; {len(spoilt)} of {lines} innocent lines changed {spoilt or ''}")
    record = json.dumps({"surfaces": rows, "innocent_lines": lines, "changed": spoilt, "met": met}, indent=2)
    print(record)
    if path:
        path.write_text(record + "\n")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
