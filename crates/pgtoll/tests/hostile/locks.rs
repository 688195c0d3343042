//! A data directory that a server elsewhere uses: another PID namespace, another host.
