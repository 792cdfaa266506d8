#!/usr/bin/env bash
# 200 generated bundles, that no machine ran, with one slow node and one regression: both must be found.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/env demo

place=build/fleet-demo
rm -rf "$place"
export AACO_FLEET_DIR=$place/lake
planted=$(python -m benchmarks.fleet._demo "$place/bundles")
read -r node session <<<"$planted"
aaco fleet ingest "$place/bundles"
aaco fleet compact
aaco fleet status
regressions=$(aaco fleet regressions) || [ $? -eq 3 ] # 3: a session is worse
top=$(aaco fleet top --most 3)
printf '%s\n' "$regressions" "$top"

must_list() { # WHAT LINE ANSWER
    grep --quiet "^$2:" <<<"$3" || { echo "the planted $1 was not found: $2" >&2; exit 1; }
}
must_list "regression" "worse $session" "$regressions"
must_list "slow node" "slow node $node" "$top"
aaco fleet report -o "$place/fleet.html"
echo
echo "found:    regression $session, slow node $node"
echo "lake:     $AACO_FLEET_DIR"
echo "page:     $place/fleet.html"
