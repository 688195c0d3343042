//! What is made from code and committed is up to date. `cargo xtask generate` makes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pgtoll_measure::{ExpectSpec, Experiment};
use pgtoll_record::{
    BalanceRecord, BridgeRecord, ChecksumsRecord, CheckupChange, CheckupRecord, CorruptRecord,
    CorruptionRecord, DrillRecord, Examination, ExchangeRecord, Expectation, ExperimentList,
    FailoverRecord, FindingCode, FleetPlan, FleetRecord, Header, JudgeRecord, LogExamination,
    Overview, PageChecksumsRecord, PageDifferenceRecord, PageRecord, PatrolRecord, PlanRecord,
    PredictionRecord, PrintedRecord, RepairRecord, ReplayComparison, ReplayRecord, RollingRecord,
    Run, RunResult, SideBySide, VerificationRecord, WalStatisticsRecord, WalWhatIfRecord,
    WatchRecord,
};
use pgtoll_report::RecordKind;
use pgtoll_testing::run_text;
use schemars::JsonSchema;
use serde_json::Value;

use crate::support::{Scratch, pgtoll, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it when `PGTOLL_UPDATE` is set.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("PGTOLL_UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, expected).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "{} is not up to date: cargo xtask generate", path.display());
}

/// Compares the JSON Schema of a kind of record with its file, `balance.schema.json` of `pgtoll.balance/1`. Returns the
/// file's name.
fn check_schema<R: PrintedRecord + JsonSchema>() -> String {
    let name = R::SCHEMA.trim_start_matches("pgtoll.").split('/').next().unwrap();
    check_json(name, &pgtoll_record::record_schema::<R>());
    name.to_owned()
}

fn check_json(name: &str, schema: &Value) {
    let pretty = serde_json::to_string_pretty(schema).unwrap() + "\n";
    check(&root().join(format!("docs/src/reference/{name}.schema.json")), &pretty);
}

#[test]
fn generated_schemas() {
    check_json("record", &pgtoll_record::line_schema());
    check_json("experiment", &pgtoll_measure::experiment_schema());
    let mut names = BTreeSet::from(["record", "experiment"].map(str::to_owned));
    names.extend([
        check_schema::<BalanceRecord>(),
        check_schema::<BridgeRecord>(),
        check_schema::<ChecksumsRecord>(),
        check_schema::<CheckupRecord>(),
        check_schema::<CheckupChange>(),
        check_schema::<CorruptRecord>(),
        check_schema::<CorruptionRecord>(),
        check_schema::<DrillRecord>(),
        check_schema::<Examination>(),
        check_schema::<ExchangeRecord>(),
        check_schema::<ExperimentList>(),
        check_schema::<FailoverRecord>(),
        check_schema::<FleetPlan>(),
        check_schema::<FleetRecord>(),
        check_schema::<JudgeRecord>(),
        check_schema::<LogExamination>(),
        check_schema::<Overview>(),
        check_schema::<PageChecksumsRecord>(),
        check_schema::<PageDifferenceRecord>(),
        check_schema::<PageRecord>(),
        check_schema::<PatrolRecord>(),
        check_schema::<PlanRecord>(),
        check_schema::<PredictionRecord>(),
        check_schema::<RepairRecord>(),
        check_schema::<ReplayComparison>(),
        check_schema::<ReplayRecord>(),
        check_schema::<RollingRecord>(),
        check_schema::<RunResult>(),
        check_schema::<SideBySide>(),
        check_schema::<VerificationRecord>(),
        check_schema::<WalStatisticsRecord>(),
        check_schema::<WalWhatIfRecord>(),
        check_schema::<WatchRecord>(),
    ]);
    // Every kind has one, and there is none of what is gone.
    for kind in RecordKind::ALL {
        assert!(names.contains(kind.name()), "{kind:?} has no schema in the reference");
    }
    let files = fs::read_dir(root().join("docs/src/reference")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let found = files.filter_map(|file| Some(file.strip_suffix(".schema.json")?.to_owned()));
    assert_eq!(found.collect::<BTreeSet<_>>(), names);
}

/// The fields of a run's record and of its result, by the descriptions in their schemas.
#[test]
fn generated_fields() {
    let mut page = "# The fields of a run's record\n\n\
        [The record](../record.md) says what belongs together. A type in italics has a table of its own.\n"
        .to_owned();
    let line = pgtoll_record::line_schema();
    let result = pgtoll_record::record_schema::<RunResult>();
    let mut types: BTreeMap<&str, &Value> = BTreeMap::from([("RunResult", &result)]);
    for schema in [&line, &result] {
        types.extend(
            schema["$defs"].as_object().unwrap().iter().map(|(name, def)| (name.as_str(), def)),
        );
    }
    for (name, definition) in types {
        let Some(fields) = definition["properties"].as_object() else { continue };
        let _ = write!(
            page,
            "\n## {name}\n\n{}\n\n| field | type | meaning |\n|---|---|---|\n",
            prose(definition)
        );
        for (field, schema) in fields {
            let _ = writeln!(page, "| `{field}` | {} | {} |", type_name(schema), prose(schema));
        }
    }
    check(&root().join("docs/src/reference/fields.md"), &page);
}

/// A description without the links of rustdoc, in one line.
fn prose(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace("[`", "`").replace("`]", "`").replace(['\n', '|'], " ")
}

/// The type of a field, as a reader of JSON calls it.
fn type_name(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        return format!("*{}*", path.rsplit('/').next().unwrap());
    }
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(alternatives) = alternatives {
        return alternatives.iter().map(type_name).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => {
            format!("array of {}", type_name(&schema["items"]))
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
        }
        _ => schema["const"].as_str().unwrap_or("any").to_owned(),
    }
}

#[test]
fn generated_finding_codes() {
    let mut page = "# Codes of findings\n\n\
        The field `conclusion` of each record's JSON has the `status` (`done`, `finding`, `could_not_tell`: exit statuses 0, 1 and 2) and\n\
        the `findings`, each with a `code`, a `subject`, a `sentence` and, if there is any, `advice`. Codes are stable.\n\n\
        | code | meaning |\n|---|---|\n"
        .to_owned();
    for code in FindingCode::ALL {
        let _ = writeln!(page, "| `{}` | {} |", code.text(), code.meaning().trim());
    }
    check(&root().join("docs/src/reference/findings.md"), &page);
}

/// Rights as `rights.rs` tests them, and what is known of providers.
#[test]
fn generated_managed_servers() {
    let mut page = "# Managed servers and rights\n\n\
        ## Rights\n\n\
        Figures over a connection, by role. The integration tests run each cell on PostgreSQL 13 to 18, as a role that owns nothing in a database\n\
        where `PUBLIC` may not create. *Without*: the command works, and its answer names the statement that gives the rest. *No*: refused before\n\
        anything is watched, with this hint. `replay record` and `replay run` take the rights of the sessions that they pass on or replay.\n\n"
        .to_owned();
    page.push_str(&crate::rights::page());
    page.push_str(
        "\n## Providers\n\n\
         A provider is recognised by its settings. Where pages and WAL are in storage of its own, `predict` and `checkup` are refused: checksums,\n\
         full-page images and checkpoints are not PostgreSQL's there, and a figure would be of something else. Elsewhere the engine is PostgreSQL's; no\n\
         role streams WAL or reads pages, and copies that views do not show are not called missing. `lab judge` and `replay` work everywhere. No\n\
         such server was at hand: these are facts of documents.\n\n\
         | provider | settings | storage | a standby that no view shows | backups | source |\n|---|---|---|---|---|---|\n",
    );
    for provider in pgtoll_format::Provider::ALL {
        let facts = provider.facts();
        let storage = if facts.has_own_storage { "its own" } else { "files" };
        let _ = writeln!(
            page,
            "| {} | `{}*` | {storage} | {} | {} | {} |",
            facts.name,
            facts.prefix,
            facts.hidden_standby.unwrap_or("none"),
            facts.backups,
            facts.source
        );
    }
    check(&root().join("docs/src/reference/managed.md"), &page);
}

#[test]
fn generated_command_line_reference() {
    let scratch = Scratch::new();
    let ran = run(pgtoll().arg("__package").arg(scratch.work()));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let reference = fs::read_to_string(scratch.work().join("cli.md")).unwrap();
    check(&root().join("docs/src/reference/cli.md"), &reference);
}

/// Every block between `<!-- report RECORD -->` and `<!-- /report -->` is what `pgtoll report`
/// prints for that record; with `RECORD lines 3-5` these lines of it.
#[test]
fn generated_reports() {
    let mut blocks = 0;
    for path in markdown_files(&root()) {
        let text = fs::read_to_string(&path).unwrap();
        let mut made = String::new();
        let mut rest = text.as_str();
        while let Some((before, tail)) = rest.split_once("<!-- report ") {
            let (request, tail) = tail.split_once(" -->").unwrap();
            let (_, tail) = tail.split_once("<!-- /report -->").unwrap();
            let (record, lines) = request.split_once(" lines ").unwrap_or((request, ""));
            let ran = run(pgtoll().arg("report").arg(root().join(record)));
            assert_eq!(ran.status, Some(0), "{record}: {ran:?}");
            let shown = excerpt(&ran.stdout, lines);
            let block =
                format!("{before}<!-- report {request} -->\n```text\n{shown}```\n<!-- /report -->");
            made.push_str(&block);
            rest = tail;
            blocks += 1;
        }
        made += rest;
        check(&path, &made);
    }
    assert!(blocks > 0, "the documentation shows no report");
}

/// The lines of a range like `3-5`, counted from 1; the whole text without one.
fn excerpt(text: &str, range: &str) -> String {
    let Some((first, last)) = range.split_once('-') else { return text.to_owned() };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    text.lines().take(last).skip(first - 1).fold(String::new(), |all, line| all + line + "\n")
}

/// The part of the chapter between `<!-- costs -->` and `<!-- /costs -->` is made from the last
/// committed record of each experiment on each major version.
#[test]
fn generated_costs() {
    let path = root().join("docs/src/what-it-cost-us.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, tail) = text.split_once("<!-- costs -->").unwrap();
    let (_, after) = tail.split_once("<!-- /costs -->").unwrap();
    let mut all = runs(&root().join("records"), "records");
    // Servers against servers are a chapter of their own.
    all.retain(|(_, run)| run.header.arms.iter().all(|arm| arm.server.is_none()));
    let mut runs = last_of_each(all);
    assert!(runs.len() > 2);
    runs.sort_by_key(|(_, run)| place(&run.header.experiment));
    for (_, run) in &mut runs {
        explain(&mut run.header);
    }
    let results: Vec<RunResult> =
        runs.iter().map(|(_, run)| pgtoll_estimate::summarise(run)).collect();
    let mut made = format!("\n{}", pgtoll_report::markdown_costs(&results));
    let mut question = None;
    for ((name, run), result) in runs.iter().zip(&results) {
        if question.as_ref() != Some(&run.header.question) {
            writeln!(made, "\n## {}", run.header.question).unwrap();
            question = Some(run.header.question.clone());
        }
        let section = pgtoll_report::markdown_section(result);
        let again = run.header.command.join(" ");
        write!(made, "\n{section}\nRecord: `{name}`. Again: `{again}`\n").unwrap();
    }
    check(&path, &format!("{before}<!-- costs -->\n{made}\n<!-- /costs -->{after}"));
}

/// Their names begin with their dates.
fn last_of_each(runs: Vec<(String, Run)>) -> Vec<(String, Run)> {
    let key = |run: &Run| (run.header.experiment.clone(), run.header.server.version.major());
    let last: BTreeMap<_, _> = runs.iter().map(|(name, run)| (key(run), name.clone())).collect();
    runs.into_iter().filter(|(name, run)| last[&key(run)] == *name).collect()
}

/// The records of runs below a directory, by their names, in order.
fn runs(directory: &Path, name: &str) -> Vec<(String, Run)> {
    if let Some(text) = run_text(directory) {
        return vec![(name.to_owned(), Run::parse(&text).unwrap())];
    }
    let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let mut below: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    below.sort();
    let name = |path: &Path| format!("{name}/{}", path.file_name().unwrap().display());
    below.iter().flat_map(|path| runs(path, &name(path))).collect()
}

/// Built-in experiments in their order, others after them.
fn place(experiment: &str) -> usize {
    let mut names = pgtoll_measure::BUILT_IN.iter();
    names.position(|(name, _)| *name == experiment).unwrap_or(usize::MAX)
}

/// An explanation is known when the claim did not hold, so it may be younger than the record. A
/// record from before its experiment claimed anything is judged by what it claims now.
fn explain(header: &mut Header) {
    let Some(experiment) = Experiment::built_in(&header.experiment) else { return };
    let now: Vec<Expectation> =
        experiment.unwrap().expect.iter().filter_map(ExpectSpec::expectation).collect();
    if header.expect.is_empty() {
        let is_there = |expectation: &Expectation| {
            header.workloads.iter().any(|workload| workload.name == expectation.workload)
        };
        header.expect = now.into_iter().filter(is_there).collect();
        return;
    }
    let without_words = |expectation: &Expectation| Expectation {
        claim: None,
        url: None,
        explained: None,
        source: String::new(),
        ..expectation.clone()
    };
    for expect in &mut header.expect {
        if let Some(now) = now.iter().find(|now| without_words(now) == without_words(expect)) {
            *expect = now.clone();
        }
    }
}

fn markdown_files(root: &Path) -> Vec<PathBuf> {
    let files = |directory: PathBuf| {
        let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
        entries
            .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
            .collect::<Vec<_>>()
    };
    [files(root.to_owned()), files(root.join("docs/src"))].concat()
}

/// The README names every command, none that there is not, and calls nothing future.
#[test]
fn the_readme_has_the_commands_that_there_are() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let help = run(pgtoll().arg("--help")).stdout;
    let commands: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains("verify") && commands.contains("lab"), "{commands:?}");
    for command in &commands {
        // Those that every program has are not named.
        let is_named =
            readme.contains(&format!("`{command}")) || ["completions", "help"].contains(command);
        assert!(is_named, "README.md does not name {command}");
    }
    let fences = readme.split("```").skip(1).step_by(2).flat_map(str::lines);
    let spans = readme.split('`').skip(1).step_by(2);
    let named = fences.chain(spans).filter_map(|line| {
        let line = line.strip_prefix("pgtoll ")?;
        line.split(|character: char| !character.is_ascii_lowercase()).next()
    });
    for word in named.filter(|word| !word.is_empty()) {
        assert!(commands.contains(word), "README.md names pgtoll {word}");
    }
    for future in ["not yet", "planned", "in future", "coming soon", "will be added", "roadmap"] {
        assert!(!readme.to_lowercase().contains(future), "README.md says {future:?}");
    }
}

#[test]
fn the_books_summary_lists_every_chapter_and_no_other() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    for path in markdown_files(&root()).iter().filter(|path| path.starts_with(root().join("docs")))
    {
        let name = path.file_name().unwrap().to_str().unwrap();
        let listed = summary.contains(&format!("({name})"));
        assert_eq!(listed, name != "SUMMARY.md", "{name}");
    }
    for link in summary.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        assert!(root().join("docs/src").join(target).is_file(), "{target}");
    }
}

/// Every line of the lists of invariants ends in what holds it: names of tests, lints or checks in
/// parentheses, and every test of that name exists.
#[test]
fn every_invariant_names_what_holds_it() {
    let tests = test_names(&root());
    assert!(tests.len() > 500, "{} tests found", tests.len());
    for file in ["ARCHITECTURE.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let (_, tail) = text.split_once("\n## Invariants").unwrap();
        let list = tail.split("\n## ").next().unwrap();
        let lines: Vec<String> = list
            .split("\n* ")
            .skip(1)
            .map(|item| item.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert!(lines.len() > 5, "{file}: {} invariants", lines.len());
        for line in lines {
            let (_, held) =
                line.rsplit_once("(held by ").unwrap_or_else(|| panic!("{file}: {line}"));
            let held = held.trim_end_matches([')', '.', ' ']);
            let names: Vec<&str> = held.split('`').skip(1).step_by(2).collect();
            assert!(!names.is_empty(), "{file}: {line}");
            for name in names {
                let is_check =
                    ["cargo ", "clippy::", "unsafe_code"].iter().any(|item| name.starts_with(item));
                assert!(is_check || tests.contains(name), "{file}: no test is called {name}");
            }
        }
    }
}

/// The functions behind a line `#[test]` (and the attributes after it) of all crates.
fn test_names(root: &Path) -> std::collections::HashSet<String> {
    let mut names = std::collections::HashSet::new();
    let mut directories = vec![root.join("crates"), root.join("xtask")];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let after_tests = text.split("#[test]").skip(1);
            let functions = after_tests.filter_map(|after| after.split_once("fn "));
            names.extend(
                functions.filter_map(|(_, function)| Some(function.split_once('(')?.0.to_owned())),
            );
        }
    }
    names
}
