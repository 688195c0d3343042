//! The report in a browser, as its readers see it.
//!
//! With `PGTOLL_TEST_AXE=PATH`, as `cargo xtask test` sets it, Chromium and axe-core must be there.
//! Without it, and without Chromium, these tests say on stderr that they did not run.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use pgtoll_report::ReportedRecord as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use pgtoll_estimate::NamedRun;
use pgtoll_record::{
    BalanceRecord, BridgeRecord, CheckupChange, CheckupRecord, CorruptionRecord, EndStatus,
    Expectation, FailoverRecord, OVERVIEW_SCHEMA, Overview, OverviewExperiment, Run, WalEndKind,
    WalStatisticsRecord,
};
use pgtoll_testing::chromium::{Browser, Page};
use pgtoll_testing::run_text;
use serde_json::Value;

/// Where axe-core lies; it is not committed.
const AXE: &str = "PGTOLL_TEST_AXE";
/// Of an experiment with ten workloads; a usual one has a third of it.
const MOST_BYTES: usize = 1_700_000;
/// A phone's width and a desktop's.
const WIDTHS: [u32; 2] = [360, 1400];
const SCHEMES: [&str; 2] = ["light", "dark"];

#[test]
fn reports_are_whole_in_every_window() {
    with_browser("reports_are_whole_in_every_window", |browser| {
        for (name, html) in reports() {
            assert!(html.len() <= MOST_BYTES, "{name}: {} bytes", html.len());
            let scratch = tempfile::tempdir().unwrap();
            let file = written(scratch.path(), &html);
            for (width, scheme) in
                WIDTHS.iter().flat_map(|width| SCHEMES.map(|scheme| (*width, scheme)))
            {
                let mut page = browser.page();
                page.look(width, scheme);
                page.load(&file);
                let at = format!("{name} at {width} px, {scheme}");
                assert_eq!(page.complaints(), Vec::<String>::new(), "{at}");
                let own = format!("\"file://{}\"", file.display());
                assert_eq!(page.requests(), [own], "{at}");
                assert_eq!(page.evaluate(OVERFLOWS), Value::from(Vec::<String>::new()), "{at}");
                let texts = page.evaluate(TEXTS_OUTSIDE);
                assert!(texts["looked_at"].as_u64().unwrap() > 10, "{at}: {texts}");
                assert_eq!(texts["outside"], Value::from(Vec::<String>::new()), "{at}");
                tell(&format!(
                    "{at}: {} kB, loaded in {} ms",
                    html.len() / 1000,
                    loaded_in(&mut page)
                ));
            }
        }
    });
}

#[test]
fn reports_are_accessible() {
    with_browser("reports_are_accessible", |browser| {
        let Some(axe) = axe() else {
            tell(
                "browser: reports_are_accessible DID NOT RUN: no axe-core, run `cargo xtask test`",
            );
            return;
        };
        for (name, html) in reports().into_iter().chain(answers()) {
            let scratch = tempfile::tempdir().unwrap();
            let file = written(scratch.path(), &html);
            for scheme in SCHEMES {
                let mut page = browser.page();
                page.look(1400, scheme);
                page.load(&file);
                // Whoever opens them reads them too.
                page.evaluate("document.querySelectorAll('details').forEach(of => of.open = true)");
                page.evaluate(&axe);
                let found = page.evaluate(RUN_AXE);
                assert!(found["passes"].as_u64().unwrap() > 20, "{name}, {scheme}: {found}");
                assert_eq!(
                    found["violations"],
                    Value::from(Vec::<String>::new()),
                    "{name}, {scheme}"
                );
            }
        }
    });
}

#[test]
fn reports_are_dark_where_that_is_wished_and_light_on_paper() {
    with_browser("reports_are_dark_where_that_is_wished_and_light_on_paper", |browser| {
        let (_, html) = reports().swap_remove(0);
        let scratch = tempfile::tempdir().unwrap();
        let file = written(scratch.path(), &html);
        let mut page = browser.page();
        let background = "getComputedStyle(document.body).backgroundColor";
        let mut looks = Vec::new();
        for scheme in SCHEMES {
            page.look(1400, scheme);
            page.load(&file);
            looks.push((page.evaluate(background), page.picture(Some(200), 1.0)));
        }
        assert_eq!(looks[0].0, "rgb(255, 255, 255)");
        assert_ne!(looks[0], looks[1]);
        assert_ne!(looks[0].1, looks[1].1);
        page.on_paper("dark");
        assert_eq!(page.evaluate(background), "rgb(255, 255, 255)");
        assert!(page.print().starts_with(b"%PDF"));
    });
}

/// Else the other tests could not fail.
#[test]
fn what_a_page_does_wrong_is_noticed() {
    with_browser("what_a_page_does_wrong_is_noticed", |browser| {
        let scratch = tempfile::tempdir().unwrap();
        let wide = "<p style='width:2000px'>wide<figure><svg viewBox='0 0 9 9' width=90>\
                    <text x=5 y=5>far out</text></svg></figure>";
        let bad = format!("<script>console.error('x')</script><img src='missing.png'>{wide}");
        let file = written(scratch.path(), &bad);
        let mut page = browser.page();
        page.look(360, "light");
        page.load(&file);
        assert_eq!(page.requests().len(), 2);
        assert!(page.complaints().len() > 1, "{:?}", page.complaints());
        assert_ne!(page.evaluate(OVERFLOWS), Value::from(Vec::<String>::new()));
        let texts = page.evaluate(TEXTS_OUTSIDE);
        assert_ne!(texts["outside"], Value::from(Vec::<String>::new()));
    });
}

#[test]
fn nothing_is_left_of_the_browser() {
    with_browser("nothing_is_left_of_the_browser", |_| ());
    let scratch = tempfile::tempdir().unwrap();
    if !Browser::is_installed() {
        return;
    }
    let mut browser = Browser::start(scratch.path());
    browser.page().evaluate("1");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "a profile is made");
    drop(browser);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "and is gone");
}

/// Runs a test, or says that it did not run.
fn with_browser(test: &str, run: impl FnOnce(&mut Browser)) {
    if Browser::is_installed() {
        return run(&mut Browser::start(&std::env::temp_dir()));
    }
    assert!(std::env::var_os(AXE).is_none(), "no Chromium; run `cargo xtask test`");
    tell(&format!("browser: {test} DID NOT RUN: no Chromium, run `cargo xtask test`"));
}

/// To whoever runs the tests, past libtest, which keeps what passing tests print to itself.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn axe() -> Option<String> {
    let path = std::env::var_os(AXE)?;
    let text = fs::read_to_string(&path);
    Some(text.unwrap_or_else(|error| panic!("read {}: {error}", path.display())))
}

/// The committed records' reports, that of a run that was interrupted, one with long names, and pages
/// of WAL statistics.
fn reports() -> Vec<(String, String)> {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let directories = fs::read_dir(records).unwrap().flatten().map(|entry| entry.path());
    let mut texts: Vec<(String, String)> = directories
        .filter_map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            Some((name, run_text(&path)?))
        })
        .collect();
    texts.sort();
    assert!(texts.len() > 1);
    let is_of_checksums = |text: &&String| text.contains("\"experiment\":\"checksums\"");
    let whole = texts.iter().map(|text| &text.1).find(is_of_checksums).unwrap().clone();
    let two_thirds = whole.match_indices('\n').map(|(at, _)| at).nth(whole.lines().count() * 2 / 3);
    texts.push(("interrupted".to_owned(), whole[..two_thirds.unwrap()].to_owned()));
    // One arm is also compared with another one.
    let ladder = whole.replace("\"checksums\":true,", "\"checksums\":true,\"against\":\"hints\",");
    assert!(ladder != whole);
    texts.push(("ladder".to_owned(), ladder));
    let long = whole
        .replace("\"hints\"", "\"hints-with-a-name-that-is-longer-than-anybody-would-choose\"")
        .replace("INSERT ... SELECT of a new table", &"Donaudampfschifffahrt".repeat(5));
    texts.push(("long names".to_owned(), long));
    let report = |text: &str| {
        let run = Run::parse(text).unwrap();
        pgtoll_report::html_report(&run, &pgtoll_estimate::summarise(&run))
    };
    let together = ("side by side".to_owned(), side_by_side(&texts));
    let overview = ("overview".to_owned(), overview(&texts));
    let runs = texts.into_iter().map(|(name, text)| (name, report(&text)));
    runs.chain([together, overview]).chain(wal_statistics()).chain(labs()).collect()
}

/// Pages without pictures, of what servers answered.
fn answers() -> [(String, String); 4] {
    let balance: BalanceRecord =
        serde_json::from_str(include_str!("../../../../records/2026-11-26-balance-19.json"))
            .unwrap();
    let bridge: BridgeRecord =
        serde_json::from_str(include_str!("../../../../records/2026-11-26-bridge.json")).unwrap();
    let checkup: CheckupRecord =
        serde_json::from_str(include_str!("../../../../records/2026-11-29-checkup.json")).unwrap();
    [
        ("balance".to_owned(), balance.html()),
        ("bridge".to_owned(), bridge.html()),
        ("checkup-change".to_owned(), CheckupChange::new(checkup.clone(), checkup.clone()).html()),
        ("checkup".to_owned(), checkup.html()),
    ]
}

/// Pages with clients over time.
fn labs() -> [(String, String); 2] {
    let failover: FailoverRecord =
        serde_json::from_str(include_str!("../../../../records/2026-11-26-failover.json")).unwrap();
    let corruption: CorruptionRecord =
        serde_json::from_str(include_str!("../../../../records/2026-11-25-corruption.json"))
            .unwrap();
    assert!(failover.runs[0].timeline.is_some() && corruption.failovers[0].timeline.is_some());
    [("failover".to_owned(), failover.html()), ("corruption".to_owned(), corruption.html())]
}

/// The page of a server's WAL, and that of WAL that broke off, without times, with long names and
/// many cycles.
fn wal_statistics() -> Vec<(String, String)> {
    let whole: WalStatisticsRecord =
        serde_json::from_str(include_str!("wal-statistics.json")).unwrap();
    let mut broken = whole.clone();
    broken.end.kind = WalEndKind::Damaged;
    (broken.source.first_time, broken.source.last_time) = (None, None);
    broken.pieces.iter_mut().for_each(|piece| piece.until_us = None);
    for name in broken.relations.iter_mut().filter_map(|relation| relation.name.as_mut()) {
        "a_table_with_a_name_as_long_as_postgresql_allows_which_is_sixty3"
            .clone_into(&mut name.relation);
    }
    broken.cycles = broken.cycles.iter().cycle().take(400).cloned().collect();
    let page = |name: &str, statistics: &WalStatisticsRecord| (name.to_owned(), statistics.html());
    vec![page("WAL statistics", &whole), page("WAL statistics that break off", &broken)]
}

/// The page of all records as if they were of one call, with claims of all kinds and one that failed.
fn overview(texts: &[(String, String)]) -> String {
    let experiment = |name: &str, status| OverviewExperiment {
        name: name.to_owned(),
        question: "What does it cost?".to_owned(),
        baseline: "off".to_owned(),
        status,
        reason: Some("no control group that limits memory can be made here".to_owned()),
        skipped: false,
        answer: None,
        answers: Vec::new(),
        comparisons: Vec::new(),
        counted: Vec::new(),
        claims: Vec::new(),
    };
    let runs = texts.iter().map(|(name, text)| (name, Run::parse(text).unwrap()));
    let runs: Vec<(&String, Run)> = runs.collect();
    let mut experiments: Vec<OverviewExperiment> = runs
        .iter()
        .map(|(name, run)| {
            let mut run = run.clone();
            run.header.expect = [("on", 0.5), ("checksums", 0.5), ("checksums", -0.5)]
                .map(|(arm, most)| claim(arm, most))
                .into();
            let result = pgtoll_estimate::summarise(&run);
            pgtoll_estimate::overview_experiment(&experiment(name, EndStatus::Complete), &result)
        })
        .collect();
    experiments.push(experiment("checksums-disk", EndStatus::Failed));
    let header = &runs[0].1.header;
    pgtoll_report::overview_html(&Overview {
        schema: OVERVIEW_SCHEMA.to_owned(),
        pgtoll: header.pgtoll.clone(),
        name: None,
        started: header.started.clone(),
        host: header.host.clone(),
        version: header.server.version.clone(),
        headline: None,
        experiments,
    })
}

fn claim(arm: &str, most: f64) -> Expectation {
    Expectation {
        workload: "read-only-misses".to_owned(),
        arm: arm.to_owned(),
        metric: "cpu_per_transaction".to_owned(),
        relative: true,
        against: None,
        lower: None,
        upper: Some(most),
        source: "a mailing list, years ago".to_owned(),
        claim: Some("It costs next to nothing in what people really do".to_owned()),
        url: Some("https://example.org/a-long-path-without-any-place-to-break-it".to_owned()),
        explained: Some(
            "Pages come from the page cache here, so that no disk hides it.".to_owned(),
        ),
    }
}

/// The page of the records that can be compared.
fn side_by_side(texts: &[(String, String)]) -> String {
    let runs = texts.iter().map(|(name, text)| (name, Run::parse(text).unwrap()));
    let runs = runs.map(|(name, run)| (name, pgtoll_estimate::summarise(&run), run));
    let runs: Vec<_> = runs.collect();
    let named = runs.iter().map(|(name, result, run)| NamedRun { name, run, result });
    // Other names are other arms.
    let is_of_checksums = |run: &NamedRun<'_>| run.run.header.experiment == "checksums";
    let named: Vec<NamedRun<'_>> =
        named.filter(|run| run.name != "long names" && is_of_checksums(run)).collect();
    pgtoll_estimate::side_by_side(&named).unwrap().html()
}

fn written(directory: &Path, html: &str) -> PathBuf {
    let file = directory.join("report.html");
    fs::write(&file, html).unwrap();
    file
}

/// For people to look at; a busy machine says nothing of the page.
fn loaded_in(page: &mut Page<'_>) -> u64 {
    let script = "Math.round(performance.getEntriesByType('navigation')[0].loadEventStart)";
    page.evaluate(script).as_u64().unwrap_or_default()
}

/// What is wider than the window, apart from what scrolls in a place of its own.
const OVERFLOWS: &str = r"(() => {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  return [...document.querySelectorAll('body *')]
    .filter(of => of.getBoundingClientRect().right > root.clientWidth + 1 && !of.closest('.scroll'))
    .map(of => of.outerHTML.slice(0, 120)).concat(['the document']);
})()";

/// Texts of pictures that stand out of their picture, or touch another text of it.
const TEXTS_OUTSIDE: &str = r"(() => {
  const outside = [];
  let lookedAt = 0;
  for (const svg of document.querySelectorAll('figure svg')) {
    const frame = svg.getBoundingClientRect();
    if (frame.width === 0) continue;
    const texts = [...svg.querySelectorAll('text')].map(of => [of, of.getBoundingClientRect()]);
    texts.forEach(([text, box], index) => {
      lookedAt += 1;
      if (box.left < frame.left - 1 || box.right > frame.right + 1
          || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
        outside.push(`${text.textContent} stands out of ${svg.textContent.slice(0, 60)}`);
      for (const [other, its] of texts.slice(index + 1)) {
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        // Lines may be set tight; letters do not touch then.
        if (wide > 1 && high > 4)
          outside.push(`${text.textContent} covers ${other.textContent}`);
      }
    });
  }
  return { looked_at: lookedAt, outside };
})()";

const RUN_AXE: &str = r"axe.run(document, { preload: false }).then(found => ({
  passes: found.passes.length,
  violations: found.violations.flatMap(rule =>
    rule.nodes.map(of => `${rule.id}: ${of.html.slice(0, 160)} ${of.failureSummary}`)),
}))";
