#!/usr/bin/env bash
# benches/rtkit.sh PROGRAM: `play` as an ordinary user without the right to real-time priorities, with the real rtkit-daemon and the real
# polkitd on a bus of their own, which this script calls the system bus. Root; dbus-daemon, rtkit, polkitd, setpriv.
#
# polkit lets users of a local session have what rtkit lends. Nobody is logged in here, so a rule lets one user. It lies in a mount of this
# script's own: nobody else's polkitd sees it, and however this ends, with the last process it is gone. So are the daemons: whoever kills
# this script kills them.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  exec unshare --mount --pid --fork --kill-child=KILL --mount-proc "$(readlink -f "$0")" --inside "$(readlink -f "${1:?the program}")"
fi
program=$2
kept=$(mktemp -d)
rule=/etc/polkit-1/rules.d/00-quietcores-try.rules
user=65534
started=()
trap 'for one in "${started[@]}"; do kill "$one" 2>/dev/null || true; done; rm -rf "$kept"' EXIT
# The first process of its own would be deaf to both.
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 755 "$kept"
cp "$program" "$kept/quietcores"   # where that user can read it
cat >"$kept/bus.conf" <<XML
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=$kept/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="false"/><allow receive_sender="*"/></policy>
</busconfig>
XML
export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$kept/bus
dbus-daemon --config-file="$kept/bus.conf" --nofork --nopidfile >"$kept/bus.log" 2>&1 & started+=($!)
until [ -S "$kept/bus" ]; do sleep 0.1; done
[ -d "${rule%/*}" ] || { echo "benches/rtkit.sh: there is no ${rule%/*}: is polkitd installed?" >&2; exit 2; }
mount -t tmpfs -o mode=755 none "${rule%/*}"
echo 'polkit.addRule(function(action, subject) { if (action.id == "org.freedesktop.RealtimeKit1.acquire-real-time" && subject.user == "nobody") return polkit.Result.YES; });' >"$rule"
chmod 644 "$rule"
/usr/lib/polkit-1/polkitd --no-debug >"$kept/polkit.log" 2>&1 & started+=($!)
# Through a pipe: it forbids itself to write files.
/usr/libexec/rtkit-daemon --no-canary --stderr > >(cat >"$kept/rtkit.log") 2>&1 & started+=($!)
sleep 3
play() { # as that user, whose limits give no right
  prlimit --rtprio=0:0 --nice=0:0 setpriv --reuid=$user --regid=$user --clear-groups --no-new-privs --bounding-set=-all \
    "$kept/quietcores" play --host null --for 1s --control none --json 2>/dev/null
}
tell() { python3 -c '
import json, sys
it = json.load(sys.stdin)
print(sys.argv[1] + ": real time", it["status"]["real_time"], it["status"]["mode"], *[f["id"] + ": " + f["evidence"] for f in it["findings"] if f["id"].startswith("play.")], sep="\n  ")' "$1"; }
play | tell "with rtkit" || code=1
kill "${started[2]}"; sleep 1
play | tell "without it" || code=1
sed 's/^/rtkit: /' "$kept/rtkit.log"
sed 's/^/polkit: /' "$kept/polkit.log" | tail -3
exit "${code:-0}"
