#!/usr/bin/env bash
# 200 generated bundles, that no machine ran, with one slow node and one regression: both must be found.
# --s3: the lake is in a bucket of rclone's S3 store, which is started and ended here.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/env demo

place=build/fleet-demo
if [ "${1:-}" = --s3 ]; then
    rm -rf "$place"
    exec python -m benchmarks.fleet._rclone "$place/store" scripts/run_fleet_demo.sh --lake s3://lake/demo
fi
lake=$place/lake
if [ "${1:-}" = --lake ]; then lake=$2; else rm -rf "$place"; fi
export AACO_FLEET_DIR=$lake
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
