#!/usr/bin/env bash
# The main job on this machine's CPU: two runs of ResNet-50, the second judged against the first as a baseline.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/env demo

demo=(--backend cpu --batch 1 --warmup 5 --iterations 20 --processes 5 --telemetry)
aaco run --model resnet50 "${demo[@]}" --tag demo-baseline --quiet >/dev/null
aaco baseline save demo --replace
aaco run --model resnet50 "${demo[@]}" --tag demo
aaco diff --baseline demo --session latest --threshold 5% || [ $? -eq 3 ] # 3: a busy machine did slow down

bundle=$(readlink -f sessions/latest)
echo
echo "bundle:   $bundle"
echo "report:   $bundle/report/report.html"
echo "verdict:  $bundle/regress/verdict.json"
