//! What turning checksums on costs once.

use pgtoll_model::prediction::IMAGE_RECORD_BYTES;
use pgtoll_record::{EnableRoute, OneTimeBill, ServerWatch, WatchedServer};

/// Bytes a second that `pg_checksums --enable` did on one core with the files in memory (0.9 to
/// 1.05 GB/s).
const PASS_MOST: f64 = 1.05e9;
/// A slow disk: it reads and writes all.
const PASS_LEAST: f64 = 0.1e9;

pub(crate) fn one_time_bill(server: &WatchedServer, watch: &ServerWatch) -> OneTimeBill {
    let seconds =
        server.data_bytes.map(|bytes| (float(bytes) / PASS_MOST, float(bytes) / PASS_LEAST));
    let logs_hints = server.settings.get("wal_log_hints").is_some_and(|value| value == "on");
    let image = float(server.block_bytes) + IMAGE_RECORD_BYTES;
    let first_touch = watch.visibility.filter(|_| !logs_hints);
    OneTimeBill {
        pass_bytes: server.data_bytes,
        pass_seconds: seconds,
        first_touch_bytes: first_touch.map(|count| whole(float(count.not_all_visible) * image)),
        routes: routes(seconds),
    }
}

fn routes(seconds: Option<(f64, f64)>) -> Vec<EnableRoute> {
    let pass = seconds.map_or_else(
        || "as long as it takes to read and write all files".to_owned(),
        |(least, most)| match [least, most].map(words) {
            [least, most] if least == most => most,
            [least, most] => format!("{least} to {most}, by its disk"),
        },
    );
    let route = |name: &str, away: String| EnableRoute { name: name.to_owned(), away };
    vec![
        route("stop the server, then pgtoll enable or pg_checksums --enable", pass.clone()),
        route(
            "stop a standby, enable there, switch over, then the old primary",
            format!("a switchover; each standby is away for {pass}"),
        ),
        route("before pg_upgrade, while the old server is stopped anyway", pass),
        route(
            "upgrade without (initdb --no-data-checksums since 18)",
            "not at all; damaged pages stay undetected".to_owned(),
        ),
    ]
}

/// `40 s`, `12 min`, `3.5 h`.
fn words(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => "under a second".to_owned(),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes, far below 2^53")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, not negative")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
