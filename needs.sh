# Sourced by ./run and ./test: finds out what is missing and installs it where that is allowed.
# Debian keeps tools such as mkfs out of an ordinary user's path.
PATH=$PATH:/usr/sbin:/sbin
missing=() packages=() wanted=() of_backports=() by_root=()
# How long another program that installs is waited for, in seconds.
patience=${NEEDS_PATIENCE:-900}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# need_package COMMAND PACKAGE: something from Debian's archive.
need_package() { wanted+=("$2"); command -v "$1" >/dev/null || packages+=("$2"); }

# need_library NAME PACKAGE: what the build links or looks up by pkg-config.
need_library() { wanted+=("$2"); pkg-config --exists "$1" 2>/dev/null || packages+=("$2"); }

# The oldest Rust that builds this, as Cargo.toml has it.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }
# newer_or_same A B: whether version A is B or newer.
newer_or_same() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Rust that is new enough: what is here; what the distribution's archive has; what its backports have; its rustup, which fetches one.
need_rust() {
  local named have offered
  named=$(rust_wanted)
  wanted+=(cargo rustc rustup)
  PATH=$PATH:$HOME/.cargo/bin
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
  if [ -n "$have" ] && newer_or_same "$have" "$named"; then return; fi
  # Where rustup is and has no toolchain yet, the one to fetch is asked for below.
  if command -v rustup >/dev/null; then rust_by_rustup=yes; return; fi
  [ -n "${lists_are_fresh:-}" ] || ! command -v apt-get >/dev/null || refresh_lists
  offered=$(offers cargo)
  if [ -n "$offered" ] && newer_or_same "$(cargo_is_of_rust "$offered")" "$named"; then
    packages+=(cargo rustc)
  elif backported "$named"; then
    of_backports+=(cargo rustc)
  elif [ -n "$(offers rustup)" ]; then
    packages+=(rustup ca-certificates)
    rust_by_rustup=yes
  else
    missing+=("Rust $named or newer (here: ${have:-none}; this distribution has ${offered:-none}): see https://rustup.rs, or take a package that needs no Rust: docs/install.md")
  fi
}
# The version of PACKAGE that the archive would give.
offers() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][^ ]*\)$/\1/p'; }
# Debian's cargo was numbered apart for long: 0.66 is of Rust 1.65.
cargo_is_of_rust() { case $1 in 0.*) echo "1.$(($(cut -d. -f2 <<<"$1") - 1))" ;; *) echo "${1%%+*}" ;; esac; }
# What Debian calls this release, where it is Debian: trixie.
release() { (. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}") || true; }
# backported VERSION: whether the release's backports have that Rust. Where they are no source here yet, they are made one after it was
# said and, at a terminal, asked; and no longer where they are of no use.
backported() {
  local name lines source=/etc/apt/sources.list.d/quietcores-backports.sources answer='' mirror keys
  name=$(release)
  [ -n "$name" ] && command -v apt-get >/dev/null || return 1
  if ! has_backport "$name" "$1"; then
    # Made a source by a run that was ended before it had read it.
    if [ -e "$source" ] && rights; then update_lists; fi
    ! has_backport "$name" "$1" || return 0
    [ ! -e "$source" ] && may_have_backport "$name" "$1" || return 1
    mirror=$(cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null |
      sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' | sed -n 1p)
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keys" ] || keys=/usr/share/keyrings/debian-archive-keyring.pgp
    lines="Types: deb
URIs: ${mirror:-http://deb.debian.org/debian}
Suites: $name-backports
Components: main
Signed-By: $keys"
    say "this needs Rust $1 or newer. Debian's own is older; its backports, $name-backports, have one. This file makes them a source,"
    say "from which nothing is taken but what is asked for: $source"
    printf '    %s\n' "${lines//$'\n'/$'\n    '}" >&2
    if ! rights; then
      # What has to be done comes in one piece, below.
      by_root+=("printf '%s\\n'$(printf " '%s'" "${lines//$'\n'/\' \'}") >$source")
      return
    fi
    if [ -t 0 ]; then
      read -rp "    Write it now? [Y/n] " answer
      case $answer in n | N | no) return 1 ;; esac
    fi
    printf '%s\n' "$lines" | "${as_root[@]}" tee "$source" >/dev/null
    update_lists
    if ! has_backport "$name" "$1"; then "${as_root[@]}" rm -f "$source"; return 1; fi
  fi
}
# Whether the lists that were read have it.
has_backport() {
  local offered
  offered=$(apt-cache madison cargo 2>/dev/null | awk -F' *\\| *' -v suite="$1-backports/" 'index($3, suite) { print $2; exit }')
  [ -n "$offered" ] && newer_or_same "$(cargo_is_of_rust "$offered")" "$2"
}
# What is known of releases, so that nobody is asked in vain: Debian 13 has had Rust 1.96 in its backports.
may_have_backport() { [ "$1" = trixie ] && newer_or_same 1.96 "$2"; }
refresh_lists() {
  lists_are_fresh=yes
  [ -z "$(offers gcc)" ] || return 0
  rights || return 0
  say "reading what the distribution has"
  update_lists
}
# Fetches a toolchain, after it was said and, at a terminal, asked.
rust_from_rustup() {
  local named answer=''
  named=$(rust_wanted)
  newer_or_same "$(cargo --version 2>/dev/null | cut -d' ' -f2 || echo 0)" "$named" && return
  say "this needs Rust $named or newer. The distribution's is older; its rustup fetches one from the makers of Rust (200 MB, for this user)."
  if [ -t 0 ]; then
    read -rp "    Fetch it now, by \`rustup toolchain install stable --profile minimal\`? [y/N] " answer
  fi
  case $answer in
    y | Y | yes) rustup toolchain install stable --profile minimal && rustup default stable ;;
    *)
      say "as this user, and then once more what you have just typed:"
      printf '    rustup toolchain install stable --profile minimal && rustup default stable\n' >&2
      exit 2 ;;
  esac
}

# What looks at the sources: beside a Rust of rustup's by rustup, beside Debian's by its packages.
need_lints() {
  if command -v rustfmt >/dev/null && command -v cargo-clippy >/dev/null; then return; fi
  if [ ${#of_backports[@]} -gt 0 ] || [ "$(command -v cargo)" = /usr/bin/cargo ]; then
    of_backports+=(rustfmt rust-clippy)
  else
    missing+=("rustfmt and clippy (rustup component add rustfmt clippy)")
  fi
}

# What building needs, sound included.
need_build() {
  need_rust
  need_package gcc gcc
  # Cargo trusts nobody without.
  [ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
  need_package pkg-config pkg-config
  need_library alsa libasound2-dev
  need_library jack libjack-jackd2-dev
}

install_needs() {
  if [ ${#missing[@]} -gt 0 ]; then
    say "missing, and not for this script to install:"
    printf '    %s\n' "${missing[@]}" >&2
    exit 2
  fi
  find_half_done
  if [ $((${#packages[@]} + ${#of_backports[@]} + ${#half_done[@]})) -gt 0 ] && ! rights; then
    [ ${#half_done[@]} = 0 ] || by_root+=("dpkg --configure -a")
    by_root+=("apt-get update")
    [ ${#half_done[@]} = 0 ] || by_root+=("apt-get install --no-install-recommends --fix-broken")
    [ ${#packages[@]} = 0 ] || by_root+=("apt-get install --no-install-recommends ${packages[*]}")
    [ ${#of_backports[@]} = 0 ] || by_root+=("apt-get install --no-install-recommends -t $(release)-backports ${of_backports[*]}")
    [ ${#half_done[@]} = 0 ] || say "installing Debian packages was broken off here: ${half_done[*]}"
    say "Debian packages are missing, and this user may not install them. As root, and then once more what you have just typed:"
    printf '    %s\n' "${by_root[@]}" >&2
    exit 2
  fi
  if [ ${#half_done[@]} -gt 0 ]; then finish_half_done; fi
  if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    # What was half done has read the lists.
    [ ${#half_done[@]} -gt 0 ] || update_lists
    apt_install "${packages[@]}"
  fi
  [ ${#of_backports[@]} = 0 ] || install_of_backports
  [ -z "${rust_by_rustup:-}" ] || rust_from_rustup
}
install_of_backports() {
  local name
  name=$(release)
  say "installing ${of_backports[*]} from $name-backports"
  apt_install -t "$name-backports" "${of_backports[@]}"
}
# What nobody else may do at the same time.
apt_install() {
  wait_for_others
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o "DPkg::Lock::Timeout=$patience" "$@" >/dev/null || {
    say "apt could not install that; what it says is above. Once it can, type once more what you have just typed."
    exit 2
  }
}
# One source of many may not answer; what is missing then, apt says when it installs.
update_lists() {
  wait_for_others
  "${as_root[@]}" apt-get update -qq -o "DPkg::Lock::Timeout=$patience" || {
    # Of the lists' lock apt waits for nobody: somebody may have come between.
    wait_for_others
    "${as_root[@]}" apt-get update -qq || say "not all of apt's lists could be read anew; those of before serve"
  }
}

# What was broken off in the middle (a kill, a power cut) is there, and not set up: its programs are found, and do not run, or lack what
# belongs to them. Found are those of the packages that are needed here, and all where something has to be installed: apt installs nothing
# before.
half_done=() dpkg_folder=${DPKG_ADMINDIR:-/var/lib/dpkg}
find_half_done() {
  half_done=()
  command -v dpkg-query >/dev/null || return 0
  local of=("${wanted[@]}")
  if [ $((${#packages[@]} + ${#of_backports[@]})) -gt 0 ]; then of=(); elif [ ${#of[@]} = 0 ]; then return; fi
  mapfile -t half_done < <(dpkg-query -W -f '${db:Status-Status} ${db:Status-Eflag} ${Package}\n' "${of[@]}" 2>/dev/null |
    awk '$1 ~ /^(half-|unpacked$|triggers-)/ || $2 == "reinst-required" { print $3 }' | sort -u)
  # dpkg's own notes of what it was at.
  if [ ${#of[@]} = 0 ] && [ ${#half_done[@]} = 0 ] && compgen -G "$dpkg_folder/updates/[0-9]*" >/dev/null; then half_done=(dpkg); fi
}
finish_half_done() {
  local asked=("${half_done[@]}")
  wait_for_others
  # Whoever was waited for may have been at it.
  find_half_done
  [ ${#half_done[@]} -gt 0 ] || { half_done=(); return 0; }
  say "installing was broken off here in the middle of ${asked[*]:0:8}$([ ${#asked[@]} -le 8 ] || echo " and $((${#asked[@]} - 8)) more"); this brings it to its end"
  # What this cannot set up, since something of it is not there yet, the next one does.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 || true
  update_lists
  apt_install --fix-broken
}

# The locks of apt and dpkg, and who has one of them, by the kernel's own list: process, name, user.
who_installs() {
  local file pid
  for file in "$dpkg_folder/lock-frontend" "$dpkg_folder/lock" /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
    [ -e "$file" ] || continue
    pid=$(awk -v at=":$(stat -c %i "$file")$" '$2 == "POSIX" && $6 ~ at && $5 > 0 { print $5; exit }' /proc/locks 2>/dev/null)
    # Another file system may have a file of that number: where its files can be seen, it has to have this one.
    [ -n "$pid" ] && [ -d "/proc/$pid" ] || continue
    [ ! -r "/proc/$pid/fd" ] || [ -n "$(find "/proc/$pid/fd" -lname "$(realpath "$file")" 2>/dev/null)" ] || continue
    echo "$pid ($(tr '\0\n' '  ' <"/proc/$pid/cmdline" | cut -c1-60 | sed 's/ *$//'), of $(stat -c %U "/proc/$pid"))"
    return
  done
}
wait_for_others() {
  local who said='' last=$((SECONDS + patience))
  while who=$(who_installs) && [ -n "$who" ]; do
    [ "$said" = "$who" ] || say "somebody else installs packages: process $who. Waiting for its end, $((patience / 60)) minutes at most."
    said=$who
    if [ $SECONDS -ge $last ]; then
      say "it still does. Once it has ended, type once more what you have just typed."
      exit 2
    fi
    sleep 0.5
  done
}
# How this user installs packages, in `as_root`; fails where that needs a password or is not to be had.
rights() {
  as_root=()
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
  as_root=(sudo -n)
}
