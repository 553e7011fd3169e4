# Sourced by ./run and ./test: finds out what is missing and installs it where that is allowed.
# Debian keeps tools such as mkfs out of an ordinary user's path.
PATH=$PATH:/usr/sbin:/sbin
missing=() packages=() of_backports=() by_root=()

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# need_package COMMAND PACKAGE: something from Debian's archive.
need_package() { command -v "$1" >/dev/null || packages+=("$2"); }

# need_library NAME PACKAGE: what the build links or looks up by pkg-config.
need_library() { pkg-config --exists "$1" 2>/dev/null || packages+=("$2"); }

# The oldest Rust that builds this, as Cargo.toml has it.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }
# newer_or_same A B: whether version A is B or newer.
newer_or_same() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Rust that is new enough: what is here; what the distribution's archive has; what its backports have; its rustup, which fetches one.
need_rust() {
  local wanted have offered
  wanted=$(rust_wanted)
  PATH=$PATH:$HOME/.cargo/bin
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
  if [ -n "$have" ] && newer_or_same "$have" "$wanted"; then return; fi
  # Where rustup is and has no toolchain yet, the one to fetch is asked for below.
  if command -v rustup >/dev/null; then rust_by_rustup=yes; return; fi
  [ -n "${lists_are_fresh:-}" ] || ! command -v apt-get >/dev/null || refresh_lists
  offered=$(offers cargo)
  if [ -n "$offered" ] && newer_or_same "$(cargo_is_of_rust "$offered")" "$wanted"; then
    packages+=(cargo rustc)
  elif backported "$wanted"; then
    of_backports+=(cargo rustc)
  elif [ -n "$(offers rustup)" ]; then
    packages+=(rustup ca-certificates)
    rust_by_rustup=yes
  else
    missing+=("Rust $wanted or newer (here: ${have:-none}; this distribution has ${offered:-none}): see https://rustup.rs, or take a package that needs no Rust: docs/install.md")
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
    "${as_root[@]}" apt-get update -qq || true
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
  "${as_root[@]}" apt-get update -qq || true
}
# Fetches a toolchain, after it was said and, at a terminal, asked.
rust_from_rustup() {
  local wanted answer=''
  wanted=$(rust_wanted)
  newer_or_same "$(cargo --version 2>/dev/null | cut -d' ' -f2 || echo 0)" "$wanted" && return
  say "this needs Rust $wanted or newer. The distribution's is older; its rustup fetches one from the makers of Rust (200 MB, for this user)."
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
  if [ $((${#packages[@]} + ${#of_backports[@]})) -gt 0 ] && ! rights; then
    by_root+=("apt-get update")
    [ ${#packages[@]} = 0 ] || by_root+=("apt-get install --no-install-recommends ${packages[*]}")
    [ ${#of_backports[@]} = 0 ] || by_root+=("apt-get install --no-install-recommends -t $(release)-backports ${of_backports[*]}")
    say "Debian packages are missing, and this user may not install them. As root, and then once more what you have just typed:"
    printf '    %s\n' "${by_root[@]}" >&2
    exit 2
  fi
  if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  fi
  [ ${#of_backports[@]} = 0 ] || install_of_backports
  [ -z "${rust_by_rustup:-}" ] || rust_from_rustup
}
install_of_backports() {
  local name
  name=$(release)
  say "installing ${of_backports[*]} from $name-backports"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -t "$name-backports" "${of_backports[@]}" >/dev/null
}
# How this user installs packages, in `as_root`; fails where that needs a password or is not to be had.
rights() {
  as_root=()
  [ "$(id -u)" != 0 ] || return 0
  command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
  as_root=(sudo -n)
}
