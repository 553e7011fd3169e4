# Sourced by ./run and ./test: finds out what is missing and installs it where that is allowed.
# Debian keeps tools such as mkfs out of an ordinary user's path.
PATH=$PATH:/usr/sbin:/sbin
missing=() packages=()

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

# need_program COMMAND HOW: something that Debian does not package recently enough.
need_program() { command -v "$1" >/dev/null || missing+=("$1 ($2)"); }

# need_package COMMAND PACKAGE: something from Debian's archive.
need_package() { command -v "$1" >/dev/null || packages+=("$2"); }

# need_library NAME PACKAGE: what the build links or looks up by pkg-config.
need_library() { pkg-config --exists "$1" 2>/dev/null || packages+=("$2"); }

# What building needs, sound included.
need_build() {
  need_program cargo "Rust 1.95 or newer: see https://rustup.rs"
  need_package gcc gcc
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
  [ ${#packages[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      say "missing Debian packages, and no right to install them. As root:"
      printf '    apt-get install %s\n' "${packages[*]}" >&2
      exit 2
    fi
  fi
  say "installing ${packages[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}
