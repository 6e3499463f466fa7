# What the commands of documents run with, see documents.py.
set -e -o pipefail

# An answer that is no success is a failure.
curl() {
    command curl -sS --fail-with-body "$@"
}

oribi() {
    case "$1" in
        serve) shift; serve_until_ready "$@" ;;
        top) command oribi "$@" --once ;;
        stats)
            case " $* " in *" --watch "*) set -- "$@" --count 2 ;; esac
            command oribi "$@" ;;
        *) command oribi "$@" ;;
    esac
}

# A server on free ports of loopback, and on a data directory of its own unless one is named.
serve_until_ready() {
    local ready server
    ready="$(mktemp -u "$PWD/ready.XXXXXX")"
    ORIBI_DATA_DIR="$(mktemp -d "$PWD/data.XXXXXX")" ORIBI_PORT=0 ORIBI_ADMIN_PORT=0 ORIBI_TLS_PORT=0 ORIBI_TLS_ADMIN_PORT=0 \
        command oribi serve "${@/#0.0.0.0/127.0.0.1}" --ready-file "$ready" &
    server=$!
    until [ -s "$ready" ]; do
        if ! kill -0 "$server" 2>/dev/null; then
            wait "$server"
            return 1
        fi
        sleep 0.05
    done
    kill -TERM "$server"
    wait "$server"
}
