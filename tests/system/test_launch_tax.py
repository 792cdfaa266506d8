"""What the launches of a real trace cost, from import to report, against SQL over the same table."""

from __future__ import annotations

import json
from pathlib import Path

CAPTURE = Path(__file__).parents[1] / "captures/torch_h200/resnet50_nchw.json.gz"


def test_the_histogram_is_that_of_the_table(aaco):
    """Mutation: durations of copies counted."""
    aaco.inside("import", CAPTURE, "--quiet")
    found = json.loads((aaco.latest / "metrics/launch_tax.json").read_text())
    edges = [bucket["from_us"] for bucket in found["buckets"]]
    assert edges == [0, 1, 5, 10, 50, 100, 500, 1000, 5000]
    for bucket in found["buckets"]:
        upper = f" and dur_ns < {1000 * bucket['to_us']}" if bucket["to_us"] else ""
        answer = aaco.inside("sql", "select count(*), coalesce(sum(dur_ns), 0)::BIGINT from kernels where dur_ns >= "
                             f"{1000 * bucket['from_us']}{upper}", "--format", "json").stdout
        assert json.loads(answer)["rows"] == [[bucket["count"], bucket["ns"]]]
    readings = json.loads((aaco.latest / "metrics/derived_metrics.json").read_text())
    assert abs(readings["microkernel_pct"]["value"] - 100 * found["short"] / found["kernels"]) < 1e-9
    (budget,) = json.loads((aaco.latest / "metrics/windows.json").read_text())["budgets_ns"]
    assert abs(readings["launch_tax_pct"]["value"] - 100 * budget["launch"] / sum(budget.values())) < 1e-9
    said = " ".join(aaco.inside("report").stdout.split())
    assert "LAUNCH TAX" in said
    assert "5 to 10 us" in said
    assert "kernels/s / 1000" in said
