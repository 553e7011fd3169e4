#!/usr/bin/env bash
# benches/khadas.sh [SECONDS]: the seed's table on Debian's arm64 kernel with two little CPUs and four big ones (in an emulator), beside the
# seed's own four of a Khadas VIM3L with an EVL kernel: all eight are imported from the form of the tool that the seed used, and stand in
# one page, benches/runs/DATE-khadas.txt. KERNEL (trixie/rt-arm64) names another; PROGRAM is the quietcores of this machine.
# The emulator's times are the emulator's, on a machine that others use: what the page shows is that the table can be made.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
program=${PROGRAM:-target/debug/quietcores}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
LAB_OUT=$out LAB_TOPOLOGY=biglittle LAB_LIMIT=900 "${LAB:-lab}/boot" "${KERNEL:-trixie/rt-arm64}" lab/guest/khadas "${1:-15}"
runs=()
for stress in idle hectic-200us hectic-10us-cache hectic-10us-cache-ping; do
  "$program" import "fixtures/results/latmus-vim3l-$stress.txt" --label "seed: $stress" -o "$out/seed-$stress.json" >/dev/null
  runs+=("$out/seed-$stress.json")
done
for stress in idle switching switching-cache switching-cache-ping; do
  "$program" import "$out/$stress.txt" --format latmus --label "guest: $stress" -o "$out/guest-$stress.json" >/dev/null
  runs+=("$out/guest-$stress.json")
done
page=benches/runs/$(date +%F)-khadas.txt
"$program" report "${runs[@]}" --markdown --force -o "$out/page.md" >/dev/null
{
  echo "# benches/khadas.sh ${1:-15}: the seed's four of a Khadas VIM3L, and an emulated machine of two little CPUs and four big ones"
  echo "# $(uname -srm), $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p); QEMU's TCG, whose times are the emulator's"
  sed 's/^<!--.*-->$//' "$out/page.md"
} >"$page"
for stress in idle switching switching-cache switching-cache-ping; do cp "$out/$stress.txt" "benches/runs/$(date +%F)-khadas-$stress.txt"; done
echo "$page"
