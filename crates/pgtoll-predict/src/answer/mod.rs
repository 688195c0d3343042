//! From what was seen of a server to answers.

mod advice;
mod asking;
mod change;
mod checks;
mod digest;
mod notes;
mod ranking;
#[cfg(test)]
mod wal_tests;
mod whatif;
mod windows;

use pgtoll_format::ServerVersion;
use pgtoll_record::{
    PREDICTION_SCHEMA, PageCosts, PredictionAnswer, PredictionRecord, Provenance, ServerWatch,
    WatchedServer,
};

use crate::answer::asking::Asking;
use crate::answer::checks::checks;
use crate::answer::digest::WatchDigest;
use crate::answer::notes::notes;
use crate::answer::ranking::payers;
use crate::one_time::{one_time_bill, sentence};
use crate::page_costs;
use crate::question::{AskedValue, SettingQuestion};

pub(crate) use crate::answer::digest::SeenSettings;

/// What was seen of a server, now or in an earlier record.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its path.
    pub server: WatchedServer,
    /// The observation of the server.
    pub watch: ServerWatch,
    /// CPU for a page there.
    pub page_costs: PageCosts,
}

impl Watched {
    /// A server that was just watched. Its kernel is timed here if it runs here.
    pub fn now(server: WatchedServer, watch: ServerWatch) -> Self {
        Self { page_costs: costs_of(&server), server, watch }
    }

    /// As an earlier record has it.
    pub fn of_record(record: PredictionRecord) -> Self {
        let PredictionRecord { server, watch, page_costs, .. } = record;
        Self { server, watch, page_costs }
    }
}

/// CPU for a page on this server: its kernel is timed here if it runs here.
pub fn costs_of(server: &WatchedServer) -> PageCosts {
    let version: Option<ServerVersion> = server.version.parse().ok();
    let facts = version.and_then(|version| version.facts().ok());
    let compression = SeenSettings::from_server(server).compression;
    page_costs(facts.unwrap_or(&pgtoll_format::MAJORS[0]), server.local, compression)
}

/// The record with an answer to each question; without questions the opposite of the server's
/// checksums is asked about.
pub fn prediction_record(
    provenance: Provenance,
    watched: Watched,
    questions: &[SettingQuestion],
) -> PredictionRecord {
    let Watched { server, watch, page_costs } = watched;
    let default = [SettingQuestion::default_for(&server.settings)];
    let questions = if questions.is_empty() { &default[..] } else { questions };
    let digest = WatchDigest::new(&server, &watch);
    let mut answers: Vec<PredictionAnswer> = questions
        .iter()
        .map(|question| {
            let today = server.settings.get(question.name).cloned().unwrap_or_default();
            let costs = &page_costs;
            let wal = watch.wal.as_ref();
            let asking = Asking { server: &server, costs, question, today, wal };
            let mut answer = asking.answer(digest.as_ref());
            answer.windows = windows::windows(&asking, &watch, &answer);
            answer
        })
        .collect();
    let turns_on = |question: &SettingQuestion| {
        question.value == AskedValue::Checksums(true)
            && server.settings.get("data_checksums").is_some_and(|value| value != "on")
    };
    let one_time = questions.iter().any(turns_on).then(|| one_time_bill(&server, &watch));
    for answer in &mut answers {
        if let (Some(advice), Some(bill)) = (&mut answer.advice, &one_time) {
            advice.sentence = Some(sentence(advice, &answer.headline, bill));
        }
    }
    PredictionRecord {
        schema: PREDICTION_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        today: digest.as_ref().map(|digest| digest.rates).unwrap_or_default(),
        notes: notes(&server, &watch, &page_costs, digest.as_ref()),
        payers: payers(questions, &watch, &page_costs, digest.as_ref()),
        one_time,
        answers,
        checks: checks(&server, &watch),
        page_costs,
        watch,
        server,
    }
}

#[cfg(test)]
mod tests {
    use pgtoll_format::Lsn;
    use pgtoll_record::{AdvisedAction, DirtyCensus, PredictionBasis, WatchWindow};

    use super::*;

    fn server(settings: &[(&str, &str)]) -> WatchedServer {
        let all = [
            ("data_checksums", "off"),
            ("wal_log_hints", "off"),
            ("full_page_writes", "on"),
            ("wal_compression", "off"),
            ("max_wal_size", "10GB"),
            ("checkpoint_timeout", "5min"),
            ("checkpoint_completion_target", "0.9"),
        ];
        let pairs = all.iter().chain(settings);
        WatchedServer {
            version: "17.10".to_owned(),
            settings: pairs
                .map(|(name, value)| (String::from(*name), String::from(*value)))
                .collect(),
            block_bytes: 8192,
            segment_bytes: 16 << 20,
            ..WatchedServer::default()
        }
    }

    /// A cycle of 5 min with 1 MB of WAL, 100 blocks read and 20 written a second, and a census that
    /// found 300 of 3,000 dirty pages changed by hints alone.
    fn window() -> WatchWindow {
        WatchWindow {
            seconds: 300.0,
            is_cycle: true,
            wal_bytes: 300_000_000,
            wal_records: Some(300_000),
            wal_images: Some(20_000),
            forced_images_most: Some(0),
            blocks_read: 30_000,
            blocks_checkpointed: 6_000,
            cpu_seconds: Some(150.0),
            census: Some(DirtyCensus {
                at: String::new(),
                redo: Lsn(1),
                age_s: 300.0,
                cycle_s: Some(300.0),
                evicted: None,
                buffers: 16_384,
                dirty: 3_000,
                covered: 3_000,
                sampled: 3_000,
                hint_only: 300,
                low: 100,
                low_hint_only: 10,
                low_unsure: 0,
                image_bytes: Some(8_000.0),
                relations: Vec::new(),
            }),
            ..WatchWindow::default()
        }
    }

    fn answered(
        settings: &[(&str, &str)],
        window: WatchWindow,
        wanted: &[&str],
    ) -> PredictionRecord {
        let watch = ServerWatch { windows: vec![window], complete: true, ..ServerWatch::default() };
        let requested: Vec<SettingQuestion> =
            wanted.iter().map(|text| SettingQuestion::parse(text).unwrap()).collect();
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        prediction_record(provenance, Watched::now(server(settings), watch), &requested)
    }

    #[test]
    fn bounds_of_one_cycle_with_evictions_beside_its_checkpoint_have_a_note() {
        let noted = |blocks_carried, blocks_evicted| {
            let window = WatchWindow { census: None, blocks_carried, blocks_evicted, ..window() };
            let record = answered(&[], window, &[]);
            record.notes.iter().any(|note| note.contains("may count for the cycle before"))
        };
        assert!(noted(10, 5));
        assert!(!noted(10, 0) && !noted(0, 5));
    }

    #[test]
    fn the_census_decides_what_hints_would_log() {
        let record = answered(&[], window(), &[]);
        let answer = &record.answers[0];
        assert_eq!((&*answer.setting, &*answer.value), ("data_checksums", "on"));
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(wal.basis, PredictionBasis::CensusAndEvictions);
        // 300 images of 8,050 bytes in 300 s, of 1 MB/s.
        let extra = wal.extra_bytes_per_second;
        assert!((extra.estimate - 8_050.0).abs() < 1.0, "{extra:?}");
        // 33 % of the estimate, beyond it 5 kB/s less and 8 kB/s more: of today's WAL 0.5 % and 0.8 %.
        assert!((0.0..1_000.0).contains(&extra.lower), "{extra:?}");
        assert!((16_050.0..20_000.0).contains(&extra.upper), "{extra:?}");
        assert_eq!(answer.advice.as_ref().unwrap().action, AdvisedAction::TurnOn);
        let cpu = answer.cpu.as_ref().unwrap();
        // 100 reads at 0.668 µs, 20 writes at 1 µs, an image at 7 µs.
        assert!((cpu.cores.estimate - 93.8e-6).abs() < 1e-8, "{cpu:?}");
        assert!((cpu.share_of_busy.unwrap().estimate - 2.0 * 93.8e-6).abs() < 1e-7);
        assert!(record.one_time.is_some());
    }

    /// Half of what is evicted at first has hints alone, and at last nothing.
    #[test]
    fn censuses_over_the_cycle_are_weighed_by_evictions() {
        let census = |age_s: f64, low_hint_only: u64, evicted: u64| DirtyCensus {
            age_s,
            evicted: Some(evicted),
            dirty: 0,
            hint_only: 0,
            low: 1000,
            low_hint_only,
            low_unsure: 0,
            ..window().census.unwrap()
        };
        let images = |evicted: [u64; 3]| {
            let [a, b, c] = evicted;
            let cycle = WatchWindow {
                blocks_evicted: 30_000,
                earlier_censuses: vec![census(100.0, 500, a), census(200.0, 100, b)],
                census: Some(census(300.0, 0, c)),
                ..window()
            };
            let wal = answered(&[], cycle, &[]).answers[0].wal.clone().unwrap();
            wal.images_per_second.unwrap().estimate * 300.0
        };
        // Of the thirds of a cycle (0.9 + 0.5) / 2, (0.5 + 0.1) / 2 and (0.1 + 0) / 2: but the first
        // census is too late to know what came before.
        let even = images([10_000, 20_000, 30_000]);
        assert!((images([0, 0, 0]) - even).abs() < 1e-6, "time stands for a counter without news");
        // Most evictions came late, where hints alone had changed nothing.
        let late = images([10_000, 11_000, 30_000]);
        assert!(late < 0.9 * even, "{late} {even}");
        let early = images([10_000, 29_000, 30_000]);
        assert!(early > 1.05 * even, "{early} {even}");
    }

    #[test]
    fn a_window_without_a_census_is_as_the_others() {
        let watch = |windows| ServerWatch { windows, complete: true, ..ServerWatch::default() };
        let images = |windows| {
            let provenance =
                Provenance { version: String::new(), command: Vec::new(), made: String::new() };
            let watched = Watched::now(server(&[]), watch(windows));
            let wal = prediction_record(provenance, watched, &[]).answers[0].wal.clone().unwrap();
            (wal.basis, wal.images_per_second.unwrap().estimate)
        };
        let without = WatchWindow { census: None, ..window() };
        assert_eq!(images(vec![window(), without]), images(vec![window()]));
    }

    #[test]
    fn hints_that_are_logged_already_cost_no_wal_again() {
        let record = answered(&[("wal_log_hints", "on")], window(), &["data_checksums=on"]);
        let answer = &record.answers[0];
        let wal = answer.wal.as_ref().unwrap();
        assert_eq!(
            (wal.extra_bytes_per_second.upper, wal.basis),
            (0.0, PredictionBasis::AlreadyLogged)
        );
        assert!(answer.reason.as_ref().unwrap().contains("wal_log_hints = on"));
        let cpu = answer.cpu.as_ref().unwrap();
        assert!(cpu.read_cores > 0.0 && cpu.image_cores == 0.0);
    }

    #[test]
    fn without_full_page_writes_hints_log_no_images() {
        let record = answered(&[("full_page_writes", "off")], window(), &["wal_log_hints=on"]);
        let answer = &record.answers[0];
        assert!(answer.wal.as_ref().unwrap().extra_bytes_per_second.upper.abs() < 1e-9);
        assert!(answer.reason.as_ref().unwrap().contains("full_page_writes"));
    }

    #[test]
    fn off_is_a_saving_of_cpu_and_of_wal_that_is_not_known() {
        let record = answered(&[("data_checksums", "on")], window(), &[]);
        let answer = &record.answers[0];
        assert_eq!((&*answer.today, &*answer.value), ("on", "off"));
        assert!(answer.wal.is_none() && answer.advice.is_none() && record.one_time.is_none());
        let cores = answer.cpu.as_ref().unwrap().cores;
        assert!(cores.lower < cores.estimate && cores.upper < 0.0, "{cores:?}");
        // Hints stay logged with the other setting.
        let both = [("data_checksums", "on"), ("wal_log_hints", "on")];
        let record = answered(&both, window(), &[]);
        let wal = record.answers[0].wal.as_ref().unwrap();
        assert!(wal.extra_bytes_per_second.lower.abs() < 1e-9);
    }

    #[test]
    fn a_server_without_work_is_measured_first() {
        let idle = WatchWindow { wal_bytes: 3_000, ..window() };
        let record = answered(&[], idle, &[]);
        let advice = record.answers[0].advice.as_ref().unwrap();
        assert_eq!(advice.action, AdvisedAction::MeasureFirst, "{advice:?}");
        assert!(record.notes.iter().any(|note| note.contains("watch it at work")));
    }

    #[test]
    fn without_a_census_whole_cycles_have_bounds_and_parts_have_none() {
        let blind = WatchWindow { census: None, select_dirtied: Some(600), ..window() };
        let wal = answered(&[], blind.clone(), &[]).answers[0].wal.clone().unwrap();
        assert_eq!(wal.basis, PredictionBasis::Statements);
        // It could be nothing, and all that was written: neither bound is one to act on.
        let blind_bounds = wal.images_per_second.unwrap();
        assert!(blind_bounds.lower <= 0.0 && blind_bounds.upper >= 0.0, "{blind_bounds:?}");
        let busy = WatchWindow { blocks_checkpointed: 40_000, ..blind.clone() };
        let action = |window| answered(&[], window, &[]).answers[0].advice.clone().unwrap().action;
        assert_eq!(action(busy.clone()), AdvisedAction::MeasureFirst);
        // A SELECT storm by statements does not decide either; a bound does.
        let storm = WatchWindow { select_dirtied: Some(40_000), ..busy };
        assert_eq!(action(storm), AdvisedAction::MeasureFirst);
        let little = WatchWindow { blocks_checkpointed: 20_500, ..blind.clone() };
        assert_eq!(action(little), AdvisedAction::TurnOn);
        let part = WatchWindow { is_cycle: false, ..blind };
        let answer = answered(&[], part, &[]).answers[0].clone();
        assert!(answer.wal.is_none() && answer.reason.is_some());
        assert_eq!(answer.advice.unwrap().action, AdvisedAction::MeasureFirst);
    }

    #[test]
    fn new_blocks_are_not_evictions() {
        let grown = WatchWindow { blocks_evicted: 5_000, blocks_extended: Some(5_000), ..window() };
        let images = |window| {
            let wal = answered(&[], window, &[]).answers[0].wal.clone().unwrap();
            wal.images_per_second.unwrap().estimate
        };
        assert!((images(grown) - images(window())).abs() < 1e-9);
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let watch = ServerWatch::default();
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        let record = prediction_record(provenance, Watched::now(server(&[]), watch), &[]);
        let answer = &record.answers[0];
        assert!(answer.wal.is_none() && answer.cpu.is_none());
        assert_eq!(answer.advice.as_ref().unwrap().action, AdvisedAction::MeasureFirst);
    }
}
