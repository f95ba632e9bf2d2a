# shellcheck shell=sh disable=SC2034
# Sourced by ./quickstart and ./check: installs Debian or Ubuntu packages that are missing.
# need_packages NAME...   (NAME|OTHER: the first of them that the system's archive has)

have_package() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]
}

need_packages() {
    command -v apt-get >/dev/null || {
        echo "this script installs packages with apt-get (Debian, Ubuntu); elsewhere install by hand: $*" >&2
        exit 1
    }
    missing=
    for choice in "$@"; do
        found=
        for name in $(echo "$choice" | tr '|' ' '); do
            if have_package "$name"; then found=yes; fi
        done
        [ -n "$found" ] || missing="$missing $choice"
    done
    [ -n "$missing" ] || return 0

    sudo=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
            echo "missing packages:$missing; run as root, or install sudo" >&2
            exit 1
        }
        sudo=sudo
    fi
    echo "installing:$missing"
    log=$(mktemp)
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q update >"$log" 2>&1 || {
        cat "$log" >&2
        echo "apt-get update failed" >&2
        exit 1
    }
    names=
    for choice in $missing; do
        picked=
        for name in $(echo "$choice" | tr '|' ' '); do
            if [ -z "$picked" ] && apt-cache show "$name" >/dev/null 2>&1; then picked=$name; fi
        done
        [ -n "$picked" ] || {
            echo "no package of $choice in this system's archive (Ubuntu: enable universe)" >&2
            exit 1
        }
        names="$names $picked"
    done
    # shellcheck disable=SC2086  # a list of names
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $names \
        >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "apt-get install failed" >&2
        exit 1
    }
    rm -f "$log"
}

# What building zplan and zexec takes.
build_packages="gcc libc6-dev meson ninja-build pkg-config libglpk-dev libcjson-dev \
libopenblas-openmp-dev libopenmpi-dev openmpi-bin zlib1g-dev"
