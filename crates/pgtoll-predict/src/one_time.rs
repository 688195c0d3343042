//! The one-time cost of turning checksums on, the way to do it, and the damage that is unnoticed
//! without them.

use pgtoll_format::ByteSize;
use pgtoll_model::prediction::IMAGE_RECORD_BYTES;
use pgtoll_record::{
    AdvisedAction, EnableRoute, OneTimeBill, PredictionAdvice, ServerWatch, WatchedServer,
};

/// Bytes a second that `pg_checksums --enable` did on one core with the files in memory (0.9 to
/// 1.05 GB/s).
const PASS_MOST: f64 = 1.05e9;
/// A slow disk: it reads and writes all.
const PASS_LEAST: f64 = 0.1e9;
/// A server without a standby may be stopped for this many seconds, as for a restart with a cold cache;
/// a longer pass is better done on a standby.
const SHORT_PASS_S: f64 = 600.0;

pub(crate) fn one_time_bill(server: &WatchedServer, watch: &ServerWatch) -> OneTimeBill {
    let of_bytes = |bytes: f64| (bytes / PASS_MOST, bytes / PASS_LEAST);
    let built_in = server.data_bytes.map(|bytes| of_bytes(float(bytes)));
    let seconds = watch.pass.map(|pass| pass.seconds).or(built_in);
    let logs_hints = server.settings.get("wal_log_hints").is_some_and(|value| value == "on");
    let image = float(server.block_bytes) + IMAGE_RECORD_BYTES;
    let first_touch = watch.visibility.filter(|_| !logs_hints);
    OneTimeBill {
        pass_bytes: watch.pass.map(|pass| pass.bytes).or(server.data_bytes),
        pass_seconds: seconds,
        pass_sample_bytes: watch.pass.map(|pass| pass.sample_bytes),
        first_touch_bytes: first_touch.map(|count| whole(float(count.not_all_visible) * image)),
        routes: routes(server, seconds),
        afterwards: afterwards(server),
        undetected: UNDETECTED.map(str::to_owned).to_vec(),
    }
}

/// Damage that stays unnoticed without checksums, and with them.
const UNDETECTED: [&str; 4] = [
    "a page that the disk, its controller or the file system changed: without checksums PostgreSQL \
     notices it only where the header is impossible, else a query returns what the page says",
    "file-level backups and new standbys copy such pages: a good backup cannot be distinguished from a bad one",
    "with checksums the read of such a page is an error, pg_stat_database.checksum_failures counts \
     it, and pg_basebackup, pg_checksums and pgtoll verify find it in time",
    "checksums do not find: a lost write (the page is old but sound), damage in memory before the checksum was computed, and damage to other files than relations",
];

fn afterwards(server: &WatchedServer) -> Vec<String> {
    let size = server.data_bytes.map_or_else(String::new, |bytes| {
        format!(" ({} to read and keep)", ByteSize(bytes).rounded())
    });
    let standbys = match server.standbys {
        0 => "standbys that are made later take checksums over".to_owned(),
        1 => "the standby: the same there, or rebuilt".to_owned(),
        count => format!("{count} standbys: the same on each, or rebuilt"),
    };
    vec![
        format!(
            "a new full base backup{size}: an incremental one on top of an older full one restores \
             pages without checksums"
        ),
        standbys,
        "no pg_rewind between a server with checksums and one without".to_owned(),
    ]
}

fn routes(server: &WatchedServer, seconds: Option<(f64, f64)>) -> Vec<EnableRoute> {
    let pass = seconds.map_or_else(
        || "as long as it takes to read and write all files".to_owned(),
        |(least, most)| match [least, most].map(describe) {
            [least, most] if least == most => most,
            [least, most] => format!("{least} to {most}"),
        },
    );
    let route = |name: &str, away: String, steps: &[&str]| EnableRoute {
        name: name.to_owned(),
        away,
        steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        recommended: None,
    };
    let mut routes = vec![
        route(
            "offline: stop the server, then pgtoll enable or pg_checksums --enable",
            pass.clone(),
            &[
                "pgtoll enable --dry-run PGDATA, while the server runs",
                "stop the server",
                "pgtoll enable PGDATA: it resumes after an interruption",
                "start the server, take a base backup",
            ],
        ),
        route(
            "a standby first: stop it, enable there, start it, switch over; then the old primary",
            format!("a switchover; each standby is away for {pass}"),
            &[
                "stop a standby that is not needed for synchronous commits, pgtoll enable there, start it",
                "wait until it has caught up, switch over to it",
                "the same on the old primary and on each other standby, one after the other",
            ],
        ),
        route(
            "before pg_upgrade, while the old server is stopped anyway",
            pass,
            &[
                "pg_upgrade refuses to mix clusters with and without checksums; since 18 initdb turns them on",
                "stop the old server, pgtoll enable there, then pg_upgrade",
            ],
        ),
        route(
            "upgrade without (initdb --no-data-checksums since 18)",
            "not at all; damaged pages stay undetected".to_owned(),
            &["the new cluster has none either, and can be given them later by any way above"],
        ),
    ];
    let (index, why) = recommended(server, seconds);
    routes[index].recommended = Some(why);
    routes
}

/// Offline where that is short, else by a standby.
fn recommended(server: &WatchedServer, seconds: Option<(f64, f64)>) -> (usize, String) {
    match (seconds, server.standbys) {
        (_, 1) => (1, "a standby streams from it".to_owned()),
        (_, standbys) if standbys > 1 => (1, format!("{standbys} standbys stream from it")),
        (Some((_, most)), _) if most <= SHORT_PASS_S => {
            (0, format!("it has no standby, and takes {} at most", describe(most)))
        }
        (Some((least, _)), _) => {
            (1, format!("offline takes {} or more: make a standby first", describe(least)))
        }
        (None, _) => {
            (1, "the downtime of the offline route is unknown: build a standby first".to_owned())
        }
    }
}

/// The decision as one sentence for those who do not read tables.
pub(crate) fn sentence(advice: &PredictionAdvice, headline: &str, bill: &OneTimeBill) -> String {
    let costs = headline.split_once(": ").map_or(headline, |(_, costs)| costs);
    let costs = costs.trim_end_matches('.');
    let away = bill.routes.iter().find(|route| route.recommended.is_some());
    let away = away.map_or_else(String::new, |route| {
        format!("; to turn them on, the server is away for {}", route.away)
    });
    let without = "without them pages that a disk damages are returned as they are, and get into \
                   backups";
    match advice.action {
        AdvisedAction::TurnOn => {
            format!("Data checksums are cheap here ({costs}), and {without}{away}.")
        }
        AdvisedAction::MeasureFirst => format!(
            "The cost of data checksums here is too uncertain to decide ({}); {without}.",
            advice.decides
        ),
        AdvisedAction::Leave => format!(
            "Data checksums are expensive here ({}); {without}, so make room for them rather than \
             do without.",
            advice.decides
        ),
    }
}

/// `40 s`, `12 min`, `3.5 h`.
fn describe(seconds: f64) -> String {
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

#[cfg(test)]
mod tests {
    use pgtoll_record::EnablePass;

    use super::*;

    fn bill(server: &WatchedServer, pass: Option<EnablePass>) -> OneTimeBill {
        one_time_bill(server, &ServerWatch { pass, ..ServerWatch::default() })
    }

    fn chosen(bill: &OneTimeBill) -> (String, String) {
        let chosen: Vec<&EnableRoute> =
            bill.routes.iter().filter(|route| route.recommended.is_some()).collect();
        assert_eq!(chosen.len(), 1, "{bill:?}");
        (chosen[0].name.clone(), chosen[0].recommended.clone().unwrap())
    }

    #[test]
    fn a_way_is_recommended_by_time_and_standbys() {
        let small = WatchedServer { data_bytes: Some(10 << 30), ..WatchedServer::default() };
        let first = bill(&small, None);
        assert!(chosen(&first).0.starts_with("offline"), "{first:?}");
        let large = WatchedServer { data_bytes: Some(4 << 40), ..WatchedServer::default() };
        let (name, why) = chosen(&bill(&large, None));
        assert!(name.starts_with("a standby first") && why.contains("make a standby"), "{why}");
        let with_standby = WatchedServer { standbys: 2, ..small };
        let second = bill(&with_standby, None);
        assert_eq!(chosen(&second).1, "2 standbys stream from it");
        assert!(second.afterwards.iter().any(|line| line.starts_with("2 standbys")), "{second:?}");
        assert!(chosen(&bill(&WatchedServer::default(), None)).1.contains("unknown"));
    }

    #[test]
    fn a_sample_of_the_files_stands_before_the_built_in_rates() {
        let server = WatchedServer { data_bytes: Some(10 << 30), ..WatchedServer::default() };
        let pass = EnablePass { bytes: 11 << 30, seconds: (20.0, 90.0), sample_bytes: 96 << 20 };
        let bill = bill(&server, Some(pass));
        assert_eq!((bill.pass_seconds, bill.pass_bytes), (Some((20.0, 90.0)), Some(11 << 30)));
        assert_eq!(bill.routes[0].away, "20 s to 90 s");
    }

    #[test]
    fn the_sentence_has_costs_and_time() {
        let server = WatchedServer { data_bytes: Some(10 << 30), ..WatchedServer::default() };
        let bill = bill(&server, None);
        let advice = |action| PredictionAdvice {
            action,
            decides: "WAL: between 2 % less and 300 % more".to_owned(),
            rule: String::new(),
            sentence: None,
        };
        let headline = "data_checksums = on: server CPU 0.1 % more; WAL 3 % more.";
        let turn_on = sentence(&advice(AdvisedAction::TurnOn), headline, &bill);
        assert!(turn_on.contains("(server CPU 0.1 % more; WAL 3 % more)"), "{turn_on}");
        assert!(turn_on.contains("away for 10 s to 107 s"), "{turn_on}");
        let measure = sentence(&advice(AdvisedAction::MeasureFirst), headline, &bill);
        assert!(measure.contains("300 % more"), "{measure}");
    }
}
