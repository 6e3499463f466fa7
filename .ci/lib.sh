# What the scripts of this folder share: sourced, never run.
# Each of them stands in the project's root, reads nothing from a terminal, and ends at the first failure.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
exec </dev/null

# Says which step begins, and when. SECONDS counts from the start of the script.
step() {
    step_name="$1"
    printf '\n=== [%4d s] %s\n' "$SECONDS" "$step_name"
}

# Installs a Debian package when the command it brings is missing and this process may do so.
# One process at a time calls apt-get, here and in tests/conformance: the lock is on the project's root.
need_command() {
    local command="$1" package="$2"
    if command -v "$command" >/dev/null 2>&1; then
        return 0
    fi
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        printf 'installing %s for %s\n' "$package" "$command"
        DEBIAN_FRONTEND=noninteractive flock --close . apt-get update -qq >/dev/null
        DEBIAN_FRONTEND=noninteractive flock --close . apt-get install -y -qq --no-install-recommends "$package" >/dev/null
    fi
    if ! command -v "$command" >/dev/null 2>&1; then
        printf 'the command %s is missing: install the Debian package %s\n' "$command" "$package" >&2
        return 1
    fi
}

# Puts a Rust program of this version from crates.io into target/tools, once, and that folder into PATH.
# What follows the version goes to cargo: a program that runs once need not be optimised.
need_crate() {
    local crate="$1" version="$2"
    shift 2
    export PATH="$PWD/target/tools/bin:$PATH"
    cargo install "$crate" --version "$version" --locked --quiet --root target/tools "$@"
}

# Puts a program of this version from PyPI into target/tools, once, and that folder into PATH.
need_wheel() {
    local package="$1" version="$2" python=target/tools/python
    [ -x "$python/bin/pip" ] || python3 -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check "$package==$version"
    export PATH="$PWD/$python/bin:$PATH"
}

# Puts a program of this version from npm into target/tools, once, and its folder into PATH.
need_npm() {
    local package="$1" version="$2" prefix="target/tools/npm-$1-$2"
    [ -d "$prefix/node_modules/.bin" ] ||
        npm install --silent --no-audit --no-fund --prefix "$prefix" "$package@$version"
    export PATH="$PWD/$prefix/node_modules/.bin:$PATH"
}

# Succeeds when a nightly toolchain is installed; says so when not.
have_nightly() {
    if ! cargo +nightly --version >/dev/null 2>&1; then
        printf 'no nightly toolchain: rustup toolchain install nightly\n' >&2
        return 1
    fi
}

# The directory of a crate of the workspace, relative to the root.
crate_directory() {
    dirname "$(grep -lx "name = \"$1\"" crates/*/Cargo.toml crates/*/*/Cargo.toml)"
}
