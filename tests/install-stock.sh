#!/usr/bin/env bash
# Installs what the tests need beside Rust: the three releases of stock Salt they compare with, and,
# on a fresh Debian machine, the system packages without which neither Salt nor we can be built or tested.
#
#   tests/install-stock.sh            everything; does nothing where it is already there
#   tests/install-stock.sh --system   only the system packages
#   tests/install-stock.sh --python   the same, and prints the Python the releases are given
#   tests/install-stock.sh --prometheus   only Prometheus; prints the directory of its programs
#   tests/install-stock.sh --api-clients  only the clients of the HTTP API; prints the directory of theirs
#   tests/install-stock.sh --axe      only axe-core, which checks pages; prints the path of its script
#   tests/install-stock.sh --mkdocs   only MkDocs, which builds the handbook; prints the directory of its programs
#   tests/install-stock.sh --databases    only PostgreSQL, MariaDB and Python's clients of them; prints their directory
#   tests/install-stock.sh --haproxy  only HAProxy; prints the directory of its program
#   tests/install-stock.sh 3008.3     only this release
#
# The releases live in ~/.cache/saltern/stock/VERSION, one Python environment each, installed by the
# ordinary pip client. May run several times at once: a lock lets one of them work at a time.
set -euo pipefail

releases=(3008.3 3007.15 3006.28)
root="${SALTERN_STOCK:-$HOME/.cache/saltern/stock}"

say() { echo "install-stock: $*" >&2; }
die() { echo "install-stock: $*" >&2; exit 1; }

# The newest Python that all three releases run on comes first; the last is what Debian calls its own.
find_python() {
    local name
    for name in "${SALTERN_PYTHON:-}" python3.11 python3.12 python3.10 python3; do
        if [ -n "$name" ] && "$name" -c \
            'import sys, venv, ensurepip; sys.exit(not (3, 9) <= sys.version_info < (3, 14))' \
            >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Without any Python, it will be Debian's that is installed, which has none.
has_python_headers() {
    local python
    python=$(find_python) && "$python" -c \
        'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

missing_packages() {
    find_python >/dev/null || echo python3 python3-venv
    # pip compiles a dependency of Salt that has no wheel.
    has_python_headers || echo python3-dev
    command -v cc >/dev/null || echo gcc libc6-dev
    command -v git >/dev/null || echo git
    # Cargo and git trust no registry without it.
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    command -v curl >/dev/null || echo curl
    command -v make >/dev/null || echo make
    command -v pkg-config >/dev/null || echo pkg-config
    command -v gpg >/dev/null || echo gnupg
    command -v ip >/dev/null || echo iproute2
    command -v zsh >/dev/null || echo zsh
    command -v fish >/dev/null || echo fish
    # The console is tested in a browser, which has no fonts of its own.
    { command -v chromium && command -v chromedriver; } >/dev/null || echo chromium chromium-driver
    [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || echo fonts-dejavu-core
    { command -v pkg-config >/dev/null && pkg-config --exists openssl; } || echo libssl-dev
}

install_system() {
    local packages
    packages=$(missing_packages | xargs)
    [ -n "$packages" ] || return 0
    [ "$(id -u)" = 0 ] || die "these packages are missing, and only root can install them:" \
        "apt-get install $packages"
    command -v apt-get >/dev/null || die "this machine lacks $packages and has no apt-get:" \
        "install them in its own way"
    say "installing $packages"
    apt-get update -q >/dev/null
    # shellcheck disable=SC2086  # a list of names, to be split
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $packages >/dev/null
}

# The stamp is written last, so an installation that was cut short is started anew.
install_release() {
    local version="$1" python="$2" home="$root/$1" started=$SECONDS
    if [ -e "$home/.complete" ] && verify "$version"; then
        return 0
    fi
    say "Salt $version: installing into $home"
    rm -rf "$home"
    "$python" -m venv "$home"
    "$home/bin/pip" install --quiet --no-input --disable-pip-version-check "salt==$version" mako \
        >"$home/pip.log" 2>&1 || { cat "$home/pip.log" >&2; die "pip cannot install salt $version"; }
    verify "$version" || die "salt $version is installed but does not start"
    touch "$home/.complete"
    say "Salt $version: ready after $((SECONDS - started)) s"
}

# Debian's package, unpacked and not installed: that would start a service on this machine.
install_prometheus() {
    local home="$HOME/.cache/saltern/tools/prometheus" work
    if [ ! -x "$home/usr/bin/promtool" ]; then
        command -v apt-get >/dev/null || die "this machine has no apt-get: put the programs" \
            "prometheus and promtool into $home/usr/bin"
        work=$(mktemp -d)
        (
            cd "$work"
            apt-get download -q prometheus >/dev/null 2>&1 ||
                { apt-get update -q && apt-get download -q prometheus; } >/dev/null
            dpkg-deb -x prometheus_*.deb unpacked
        ) || die "Debian's package prometheus cannot be downloaded"
        mkdir -p "$home/usr/bin"
        mv "$work"/unpacked/usr/bin/{prometheus,promtool} "$home/usr/bin"
        rm -rf "$work"
    fi
    echo "$home/usr/bin"
}

# Unpacks Debian's packages with what they need into a directory. They are not installed: that would
# start services on this machine.
unpack() {
    local home="$1" work package
    shift
    work=$(mktemp -d)
    mkdir "$work/partial"
    fetch() {
        apt-get install -qy --download-only --reinstall --no-install-recommends \
            -o Debug::NoLocking=1 -o Dir::Cache::archives="$work" "$@"
    }
    fetch "$@" >/dev/null 2>&1 || { apt-get update -q && fetch "$@"; } >/dev/null ||
        die "Debian's packages $* cannot be downloaded"
    for package in "$work"/*.deb; do
        dpkg-deb -x "$package" "$home"
    done
    rm -rf "$work"
}

# The stamp is written last.
install_haproxy() {
    local home="$HOME/.cache/saltern/tools/haproxy"
    if [ ! -e "$home/.complete" ]; then
        command -v apt-get >/dev/null || die "this machine has no apt-get: put the program haproxy into" \
            "$home/usr/sbin, and make $home/.complete"
        say "HAProxy: unpacking into $home"
        rm -rf "$home"
        mkdir -p "$home"
        unpack "$home" haproxy
        touch "$home/.complete"
    fi
    echo "$home/usr/sbin"
}

# The stamp is written last.
install_databases() {
    local home="$HOME/.cache/saltern/tools/databases" python="$1" server
    if [ ! -e "$home/.complete" ]; then
        command -v apt-get >/dev/null || die "this machine has no apt-get: the tests of src/sql need" \
            "PostgreSQL and MariaDB of Debian, unpacked into $home"
        say "PostgreSQL and MariaDB: unpacking into $home"
        rm -rf "$home"
        mkdir -p "$home"
        server=$(apt-cache depends postgresql | sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -n 1)
        [ -n "$server" ] || { apt-get update -q >/dev/null && server=$(apt-cache depends postgresql |
            sed -n 's/.*Depends: \(postgresql-[0-9]*\)$/\1/p' | head -n 1); }
        unpack "$home" "$server" mariadb-server-core
        "$python" -m venv "$home/pip"
        "$home/pip/bin/pip" install --quiet --no-input --disable-pip-version-check --target "$home/clients" \
            psycopg2-binary==2.9.13 pymysql==1.2.4 >&2 || die "pip cannot install Python's clients"
        "$home/pip/bin/pip" install --quiet --no-input --disable-pip-version-check --no-deps \
            --target "$home/extension" saltext.mysql==1.1.0 >&2 || die "pip cannot install saltext.mysql"
        touch "$home/.complete"
    fi
    echo "$home"
}

# pip writes a distribution's directory after its files, so one that is there is complete.
install_api_clients() {
    local home="$HOME/.cache/saltern/tools/api-clients" name missing=()
    for name in salt-pepper==0.7.6 websocket-client==1.9.2; do
        local file=${name//-/_}
        compgen -G "$home/lib/python*/site-packages/${file/==/-}.dist-info/RECORD" >/dev/null ||
            missing+=("$name")
    done
    if [ ${#missing[@]} != 0 ]; then
        say "${missing[*]}: installing into $home"
        [ -x "$home/bin/pip" ] || "$1" -m venv "$home"
        "$home/bin/pip" install --quiet --no-input --disable-pip-version-check setuptools "${missing[@]}" >&2 ||
            die "pip cannot install ${missing[*]}"
    fi
    # For stock's salt-api in a test of its websockets, and not in its environment, where it has none.
    local ws4py="$HOME/.cache/saltern/tools/ws4py-0.6.0"
    if ! compgen -G "$ws4py/ws4py-0.6.0.dist-info/RECORD" >/dev/null; then
        say "ws4py: installing into $ws4py"
        "$home/bin/pip" install --quiet --no-input --disable-pip-version-check --no-deps \
            --target "$ws4py" ws4py==0.6.0 >&2 || die "pip cannot install ws4py"
    fi
    echo "$home/bin"
}

# The script comes in a wheel of PyPI, of which nothing else is used: no Node, no npm.
install_axe() {
    local home="$HOME/.cache/saltern/tools/axe-core-4.12.1" work python="$1"
    if [ ! -s "$home/axe.min.js" ]; then
        say "axe-core: installing into $home"
        work=$(mktemp -d)
        echo "axe-playwright-python==0.1.8 --hash=sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8" >"$work/wheel"
        "$python" -m venv "$work/venv"
        "$work/venv/bin/pip" download --quiet --no-input --disable-pip-version-check --no-deps \
            --require-hashes --requirement "$work/wheel" --dest "$work" >&2 || die "pip cannot download axe-core"
        "$python" -m zipfile -e "$work"/axe_playwright_python-*.whl "$work/unpacked"
        mkdir -p "$home"
        mv "$work/unpacked/axe_playwright_python/axe.min.js" "$home/axe.min.js"
        rm -rf "$work"
    fi
    echo "$home/axe.min.js"
}

# pip writes a distribution's directory after its files. Named are the packages that decide what pages
# look like, the newest that Debian 12's Python 3.11.2 takes, and those whose warnings end the build, which
# is strict; what they need beside is pip's choice.
install_mkdocs() {
    local home="$HOME/.cache/saltern/tools/mkdocs" name missing=()
    for name in mkdocs==1.6.1 mkdocs-material==9.8.2 pymdown-extensions==12.3 markdown==3.11.3 \
        click==8.5.1 pygments==2.21.0 watchdog==7.1.0 backrefs==8.3.1 pathspec==1.1.1; do
        local file=${name//-/_}
        compgen -G "$home/lib/python*/site-packages/${file/==/-}.dist-info/RECORD" >/dev/null ||
            missing+=("$name")
    done
    if [ ${#missing[@]} != 0 ]; then
        say "${missing[*]}: installing into $home"
        [ -x "$home/bin/pip" ] || "$1" -m venv "$home"
        "$home/bin/pip" install --quiet --no-input --disable-pip-version-check "${missing[@]}" >&2 ||
            die "pip cannot install ${missing[*]}"
    fi
    echo "$home/bin"
}

verify() {
    "$root/$1/bin/python" - "$1" <<'PYTHON'
import sys
import mako, salt.version, salt.minion, salt.master, salt.cli.salt
sys.exit(salt.version.__version__ != sys.argv[1])
PYTHON
}

mkdir -p "$root"
exec 9>"$root/.lock"
flock 9

install_system
[ "${1:-}" != --system ] || exit 0
if [ "${1:-}" = --prometheus ]; then
    install_prometheus
    exit 0
fi
if [ "${1:-}" = --haproxy ]; then
    install_haproxy
    exit 0
fi
python=$(find_python) || die "no usable Python 3.9 to 3.13 with venv was found"
if [ "${1:-}" = --python ]; then
    echo "$python"
    exit 0
fi
if [ "${1:-}" = --api-clients ]; then
    install_api_clients "$python"
    exit 0
fi
if [ "${1:-}" = --axe ]; then
    install_axe "$python"
    exit 0
fi
if [ "${1:-}" = --mkdocs ]; then
    install_mkdocs "$python"
    exit 0
fi
if [ "${1:-}" = --databases ]; then
    install_databases "$python"
    exit 0
fi
if [ $# = 0 ]; then
    install_axe "$python" >/dev/null
    install_databases "$python" >/dev/null
    install_haproxy >/dev/null
    install_prometheus >/dev/null
    install_api_clients "$python" >/dev/null
    install_mkdocs "$python" >/dev/null
else
    releases=("$@")
fi

# Two at a time: pip is busy with one core each.
failed=0
pids=()
for version in "${releases[@]}"; do
    install_release "$version" "$python" &
    pids+=($!)
    if [ ${#pids[@]} -ge 2 ]; then
        wait "${pids[0]}" || failed=1
        pids=("${pids[@]:1}")
    fi
done
for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
done
[ "$failed" = 0 ] || die "at least one release could not be installed"
