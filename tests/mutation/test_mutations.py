"""Each check is broken once on purpose: the tests that are named for it must notice.

A mutation is one replacement in one file of the package, made in a copy. `python -m pytest tests/mutation` runs all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# file under src/aaco, what is there, what it becomes, tests that must fail
MUTATIONS = [
    ("core/statistics.py", "return math.ceil(1 / min(q, 1 - q) - 1e-9)", "return 1", "tests/unit/test_statistics.py"),
    ("core/statistics.py", "tail = (1 - level) / 2", "tail = 1 - level", "tests/unit/test_statistics.py"),
    ("core/statistics.py", "0.5 + level / 2", "level", "tests/unit/test_statistics.py"),
    ("core/session.py", "_start_ticks(self.pid) == self.start_ticks", "True", "tests/unit/test_session.py"),
    ("core/session.py", "self.boot_id == _boot_id() and", "", "tests/unit/test_session.py"),
    ("core/documents.py", "version > newest", "False", "tests/unit/test_session.py"),
    ("core/files.py", "temporary.unlink(missing_ok=True)\n            raise", "raise", "tests/unit/test_files.py"),
    ("core/files.py", "allow_nan=False", "allow_nan=True", "tests/unit/test_files.py"),
    ("core/readings.py", "if self.reading.value is None:\n            return None", "if self.reading.value is None:\n"
     "            return False", "tests/unit/test_readings.py"),
    ("core/readings.py", "all(item.holds for item in self.evidence if item.essential) and", "",
     "tests/unit/test_readings.py"),
    ("core/registry.py", "_refuse_twice(_ALIASES, name.lower(), function)", "pass", "tests/unit/test_readings.py"),
    ("core/config.py", "layers.append((overridden_by, overrides or {}))",
     "layers.insert(0, (overridden_by, overrides or {}))", "tests/unit/test_config.py"),
    ("core/config.py", 'extra="forbid"', 'extra="ignore"', "tests/unit/test_config.py"),
    ("runner/iterations.py", "raw[: len(raw) // ROW.size * ROW.size]", "raw", "tests/unit/test_iterations.py"),
    ("runner/iterations.py", "(rows[:, 3] < rows[:, 2])", "False", "tests/unit/test_iterations.py"),
    ("runner/stopping.py", "elapsed_ns >= self.budget_ns", "elapsed_ns > self.budget_ns",
     "tests/unit/test_iterations.py"),
    ("runner/stopping.py", "100 * (median.high - median.low)", "(median.high - median.low)",
     "tests/unit/test_iterations.py"),
    ("profiler/ort.py", "run - warmup, pa.int64()", "run, pa.int64()", "tests/unit/test_ort_profile.py"),
    ("profiler/ort.py", 'CONTAINERS = {"If", "Loop",', 'CONTAINERS = {"If",', "tests/unit/test_ort_profile.py"),
    ("profiler/digits.py", "np.arange(3, -1, -1)", "np.arange(4, 0, -1)", "tests/unit/test_ort_profile.py"),
    ("analytics/attribution/nodes.py", "for end in ends[:-1]), duration]", "for end in ends)]",
     "tests/unit/test_attribution.py"),
    ("analytics/attribution/nodes.py", "min(duration, round(duration * end))", "round(1.5 * duration * end)",
     "tests/property/test_attribution.py"),
    ("analytics/kernel_groups.py", "FEWEST_FOR_P99 = 100", "FEWEST_FOR_P99 = 1", "tests/unit/test_attribution.py"),
    ("analytics/inputs.py", "reach = np.maximum.accumulate(end)", "reach = end", "tests/unit/test_metrics.py"),
    ("analytics/steadiness.py", "np.median(latencies[:whole]", "np.mean(latencies[:whole]",
     "tests/unit/test_metrics.py"),
    ("analytics/metrics/kernels.py", "return kernels_per_inference / executed_nodes.num_rows",
     "return kernels_per_inference * 2 / executed_nodes.num_rows", "tests/unit/test_metrics.py"),
    ("analytics/measurement_quality.py", "NEEDED = 0.6", "NEEDED = 0.0", "tests/unit/test_metrics.py"),
    ("analytics/roofline/nodes.py", "ideal_ns = max(compute_ns, memory_ns)", "ideal_ns = min(compute_ns, memory_ns)",
     "tests/unit/test_metrics.py"),
    ("analytics/roofline/nodes.py", 'machine.get(PEAKS.get(dtype, ""))', "machine.get(PEAK)",
     "tests/unit/test_metrics.py"),
    ("analytics/roofline/nodes.py", "sum(flops) * max(times)", "sum(flops)", "tests/unit/test_metrics.py"),
    ("analytics/inputs.py", "began = at - _intervals_ns(samples)", "began = at", "tests/unit/test_metrics.py"),
    ("analytics/trips.py", "if _goes_on(body, inner) else None", "", "tests/unit/test_graph.py"),
    ("governance/compare.py", "LEAST = 5", "LEAST = 4", "tests/unit/test_compare.py"),
    ("governance/compare.py", "if waited and not doubtful_too", "if False", "tests/unit/test_compare.py"),
    ("governance/compare.py", "if bad and not doubtful_too", "if False", "tests/unit/test_compare.py"),
    ("governance/agreement.py", "min(_largest(left), _largest(right))", "max(_largest(left), _largest(right))",
     "tests/unit/test_outputs.py"),
    ("runner/dimensions.py", "if len(fixed) == 1 and batch not in fixed:", "if False:", "tests/unit/test_inputs.py"),
    ("runner/model_file.py", "while name in taken:", "while False:", "tests/unit/test_model_file.py"),
    ("report/content.py", "ALIKE = (0.9, 1.25)", "ALIKE = (0.0, 2.0)", "tests/unit/test_report_terminal.py"),
    ("analytics/rules/roof.py", "NEAR = 0.3", "NEAR = 0.0", "tests/unit/test_metrics.py"),
    ("analytics/timeline.py", "begin = np.maximum(rows.start, before)", "begin = rows.start",
     "tests/unit/test_timeline.py"),
    ("analytics/work.py", "(end >= start)", "(end != start)", "tests/unit/test_timeline.py"),
    ("analytics/idle.py", "np.minimum(self.ns, blocked)", "self.ns", "tests/unit/test_idle.py"),
    ("analytics/idle.py", "& (call.end > began) & ~waited", "& (call.end > began)", "tests/unit/test_idle.py"),
    ("analytics/idle.py", "synced = call.synced_until > began",
     "synced = (call.synced_from <= began) & (call.synced_until > began)", "tests/unit/test_idle.py"),
    ("analytics/linking.py", "start - before < PAUSE_NS", "start - before < 2**62", "tests/unit/test_idle.py"),
    ("analytics/linking.py", "(previous < Does.COPY)", "(previous <= Does.COPY)", "tests/unit/test_idle.py"),
    ("analytics/linking.py", " | (part == Does.COPY) & (previous >= Does.SYNC)", "",
     "tests/property/test_linking.py"),
    ("analytics/launches.py", "first = rows[linked.first[rows]]", "first = rows", "tests/unit/test_launches.py"),
    ("analytics/collectives.py", "self.latency = np.minimum.reduceat", "self.latency = np.maximum.reduceat",
     "tests/unit/test_collectives.py"),
    ("analytics/repetition.py", "NEARLY = 1 / 400", "NEARLY = 0.1", "tests/unit/test_repetition.py"),
    ("analytics/measure.py", "for function in functions[:-1]:", "for function in ():", "tests/unit/test_metrics.py"),
    ("collectors/perf_switches.py", "while new := _threads(self.pid, self.host) - seen:",
     "for new in ({self.pid},):", "tests/unit/test_perf_switches.py"),
    ("collectors/perf_switches.py", "repeats[1:] &= entered[1:] == entered[:-1]", "repeats[:] = False",
     "tests/unit/test_perf_switches.py"),
    ("collectors/perf_switches.py", "for begins, ends in losses:", "for begins, ends in ():",
     "tests/unit/test_perf_switches.py"),
    ("collectors/perf_switches.py", 'rows["cpu"][at + 1] != rows["cpu"][at]', 'rows["cpu"][at + 1] >= 0',
     "tests/unit/test_perf_switches.py"),
    ("collectors/perf_switches.py", "self._append_lost()", "pass", "tests/unit/test_perf_switches.py"),
    ("collectors/perf_switches.py", "if grown[1] == grown[2]:", "if True:", "tests/unit/test_perf_switches.py"),
    ("collectors/recording.py", "(len(content) - begin) // self.record.itemsize",
     "-(-(len(content) - begin) // self.record.itemsize)", "tests/unit/test_perf_switches.py"),
    ("collectors/perf_ring.py", "self._data[:max(0, end - len(self._data))]", "self._data[:0]",
     "tests/unit/test_perf_switches.py"),
    ("collectors/perf_ring.py", "np.isin(words[:, 1], np.array(majors, np.uint64))", "words[:, 1] > 0",
     "tests/unit/test_perf_switches.py"),
    ("collectors/perf_event.py", "flags |= _INHERIT |", "flags |=", "tests/unit/test_perf_switches.py"),
    ("collectors/ladder.py", 'if tier == "T2" and sources:', "if False:", "tests/unit/test_ladder.py"),
    ("collectors/ladder.py", "why_not[tier] = reason.what", "pass", "tests/unit/test_ladder.py"),
    ("collectors/user_markers.py", "len(content) // _RECORD.itemsize", "-(-len(content) // _RECORD.itemsize)",
     "tests/unit/test_markers.py"),
    ("markers.py", "self._own = _local()", 'self.__dict__.setdefault("_own", _local())', "tests/unit/test_markers.py"),
    ("markers.py", "if attached else None", "", "tests/unit/test_markers.py"),
    ("analytics/overlap.py", "total[count])", "total[np.minimum(count, len(times) - 1)])",
     "tests/property/test_overlap.py"),
    ("analytics/overlap.py", 'unwatched = ~_watched(system_events, tier, start, stop)',
     "unwatched = np.zeros(len(start), bool)", "tests/property/test_overlap.py"),
    ("analytics/spikes.py", "excess = time - length * float(np.median(beside / np.maximum(lengths, 1)))",
     "excess = time - usual", "tests/property/test_spikes.py"),
    ("analytics/metrics/host.py", "marks[-1] > before[-1]", "True", "tests/unit/test_host_metrics.py"),
    ("analytics/limits.py", "if value >= bad:", "if False:", "tests/unit/test_host_metrics.py"),
    ("tracelake/timeline_tracks.py", "np.where(summed, length, 0)", "length", "tests/unit/test_perfetto.py"),
    ("analytics/waves/execution.py", "owned = until - begin", "owned = end - begin", "tests/property/test_waves.py"),
    ("analytics/waves/execution.py", "wanted * size + row) - 1", "wanted * size + row)",
     "tests/property/test_waves.py"),
    ("analytics/waves/execution.py", "_rank(ours) // np.maximum(share, 1)", "_rank(ours)",
     "tests/property/test_waves.py"),
    ("analytics/waves/presence.py", "np.lexsort((change, at, where))", "np.lexsort((-change, at, where))",
     "tests/property/test_waves.py"),
    ("analytics/waves/inside.py", "if listed != len(ran):", "if False:", "tests/system/test_instructions.py"),
    ("analytics/critical_path/dag.py", "lag[chosen] += ", "lag[chosen] += 0 * ",
     "tests/property/test_critical_path_dag.py"),
    ("analytics/critical_path/dag.py", "max(1, ceil(factor.max(initial=1.0)))", "1",
     "tests/property/test_critical_path_dag.py"),
    ("analytics/critical_path/edges.py", "part[kind == Edge.LAUNCH] = 0", "pass",
     "tests/property/test_critical_path.py"),
    ("analytics/critical_path/edges.py", "np.searchsorted(np.maximum.accumulate(end), work.end[rows]))",
     'np.searchsorted(begin, work.start[rows], side="right"))', "tests/unit/test_critical_path.py"),
    ("analytics/critical_path/events.py", "lane = coded(capture, process,", "lane = coded(capture, capture,",
     "tests/unit/test_critical_path.py"),
    ("analytics/launch_tax.py", 'side="right"', 'side="left"', "tests/property/test_launch_tax.py"),
    ("profiler/ncu.py", 'float(text.replace(",", ""))', 'float(text.split(",")[0])', "tests/unit/test_ncu.py"),
    ("profiler/ncu.py", "if factor == 1 or", "if True or", "tests/unit/test_ncu.py"),
    ("profiler/ncu.py", "            yield from self.flush()\n            self._begin(", "            self._begin(",
     "tests/unit/test_ncu.py"),
    ("analytics/devices/ceilings.py", "board.arch == device.arch and board.compute_units == device.compute_units",
     "_named(board, device)", "tests/unit/test_devices.py"),
    ("analytics/devices/architectures.py", '"matrix_f8": 4096', '"matrix_f8": 2048', "tests/unit/test_devices.py"),
    ("analytics/roofline/formulas.py", "trans: LANES, fma: 2 * LANES", "trans: LANES, fma: LANES",
     "tests/unit/test_counted.py"),
    ("analytics/roofline/formulas.py", "LANES, MFMA = 64, 512", "LANES, MFMA = 64, 256", "tests/unit/test_counted.py"),
    ("analytics/roofline/formulas.py", '"gfx950": _amd({**_GFX942, "f6f4": "F6F4"}, _THREE_SIZES',
     '"gfx950": _amd({**_GFX942, "f6f4": "F6F4"}, _BUBBLE', "tests/unit/test_counted.py"),
    ("analytics/roofline/counted.py", "if not blocks & counted.nonzero and", "if False and",
     "tests/unit/test_counted.py"),
    ("analytics/roofline/counted.py", "return ran & (known == 0)", "return np.zeros(counted.count, bool)",
     "tests/unit/test_counted.py"),
    ("analytics/roofline/placement.py", 'units[name.partition("_")[0]] += np.where', 'units["vector"] += np.where',
     "tests/unit/test_kernel_roofline.py"),
    ("analytics/roofline/placement.py", "return np.where(rows, values, np.nan)", "return np.minimum(values, 1.0)",
     "tests/unit/test_kernel_roofline.py"),
    ("analytics/roofline/placement.py", "np.where(1e9 * self.moved(level) / self.time_ns > peak, behind, peak)",
     "np.full(self.count, behind)", "tests/unit/test_kernel_roofline.py"),
    ("analytics/roofline/summary.py", "np.where(possible, flops, np.nan)", "flops",
     "tests/unit/test_kernel_roofline.py"),
    ("analytics/occupancy.py", "-(-value // granule) * granule", "value", "tests/unit/test_occupancy.py"),
    ("analytics/occupancy.py", "return max(plain, accumulating)", "return plain + accumulating",
     "tests/unit/test_occupancy.py"),
    ("analytics/occupancy.py", "(kernel.lds_bytes or 0) + arch.lds_reserved", "(kernel.lds_bytes or 0)",
     "tests/unit/test_occupancy.py"),
    ("profiler/code_object.py", "offset + size > len(data)", "False", "tests/unit/test_code_object.py"),
    ("profiler/code_object.py", "(first & 0x3F) + 1", "(first >> 6 & 0x3F) + 1", "tests/unit/test_code_object.py"),
    ("profiler/assembly.py", r'_INSTRUCTION = re.compile(r"\s+(', r'_INSTRUCTION = re.compile(r".*?\s+(',
     "tests/unit/test_code_object.py"),
    ("governance/sla.py", "if ends[1] > beyond:", "if False:", "tests/unit/test_sla.py"),
    ("governance/sla.py", 'else ("skip", why)', 'else ("pass", why)', "tests/unit/test_sla.py"),
    ("webhook.py", "error.code < 500 and error.code not in AGAIN", "True", "tests/unit/test_webhook.py"),
    ("webhook.py", "build_opener(_NoRedirect)", "build_opener()", "tests/unit/test_webhook.py"),
    ("webhook.py", "redact(json.dumps(document, allow_nan=False))", "json.dumps(document)",
     "tests/unit/test_webhook.py"),
    ("tracelake/archive.py", "if kind and not packing.is_sealed(file, size, kind):", "if False:",
     "tests/unit/test_archive.py"),
    ("tracelake/archive.py", " or digest.hexdigest() != each.sha256:", ":",
     "tests/unit/test_archive.py"),
    ("tracelake/archive.py", "if _exactly(stream, len(wanted)) != wanted:", "if not _exactly(stream, len(wanted)):",
     "tests/unit/test_archive.py"),
    ("tracelake/archive.py", "part not in (\"\", \".\", \"..\") and", "", "tests/unit/test_archive.py"),
    ("tracelake/archive.py", "contents.unpacked > self.most_bytes", "False", "tests/unit/test_archive.py"),
    ("tracelake/disclosure.py", "Disclosed(name, copy if changed else path, changed)",
     "Disclosed(name, path, changed)", "tests/system/test_bundle.py"),
    ("forensics.py", "for file, problem in manifest.check(unpacked).items():", "for file, problem in ():",
     "tests/system/test_bundle.py"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutant")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(("name", "old", "new", "tests"), MUTATIONS, ids=[f"{row[0]}:{row[1]}" for row in MUTATIONS])
def test_the_mutant_is_caught(copy, name, old, new, tests):
    path = copy / "src" / "aaco" / name
    original = path.read_text()
    assert original.count(old) >= 1, f"{name} does not hold {old!r} any more: renew the mutation"
    path.write_text(original.replace(old, new))
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(ROOT / tests)]
        mutant_first = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=os.environ | mutant_first, text=True, capture_output=True)
    finally:
        path.write_text(original)
    assert done.returncode == 1, f"survived:\n{done.stdout[-1500:]}"
