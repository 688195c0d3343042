//! `pgtoll lab judge`: what an application sees of a server while something happens to it.

use std::io::{IsTerminal as _, stdin};

use anyhow::Context as _;
use pgtoll_cluster::UserCommand;
use pgtoll_format::TimeSpan;
use pgtoll_lab::{JudgeFault, JudgeFaultEnd, JudgePlan, JudgeProgress, conclude, judge};
use pgtoll_record::{JudgeRecord, Status};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;

use crate::again;
use crate::arguments::LabJudgeArguments;
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(arguments: &LabJudgeArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<JudgeRecord>().formats(),
    )?;
    let interrupt = Interrupt::new();
    let record = match &arguments.from {
        Some(directory) => {
            interrupt.catch_signals().context("catch signals")?;
            let limit = arguments.heal.0;
            let history = arguments.history.as_deref();
            let provenance = again::provenance();
            conclude(&arguments.dsn, directory, limit, history, provenance, &interrupt)?
        }
        None => judged(arguments, &interrupt, printer)?,
    };
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

fn judged(
    arguments: &LabJudgeArguments,
    interrupt: &Interrupt,
    printer: &mut Printer,
) -> anyhow::Result<JudgeRecord> {
    let plan = plan(arguments);
    let fault = fault(arguments)?;
    confirm(&plan, arguments.yes, printer)?;
    interrupt.catch_signals().context("catch signals")?;
    let mut shown_failures = 0;
    let on_progress = &mut |progress: JudgeProgress<'_>| match progress {
        JudgeProgress::Leftover(schema) => printer.warn(&format!(
            "pgtoll: schema {} is there ({}); if no run uses it: {}",
            schema.name,
            schema.comment,
            schema.removal()
        )),
        JudgeProgress::Event(label) => printer.stage(label),
        JudgeProgress::Load { elapsed, acknowledged, failed, silent } => {
            let all = plan.duration.as_secs();
            let mut words = format!("{acknowledged} acknowledged, {failed} failed or unknown");
            if silent.as_secs() > 0 {
                words = format!("{words}, none for {} s", silent.as_secs());
            }
            printer.progress(&words, elapsed.as_secs().min(all), all);
            if failed > 0 && shown_failures == 0 {
                printer.milestone("the first transaction failed");
                shown_failures = failed;
            }
        }
    };
    Ok(judge(&plan, fault, again::provenance(), interrupt, on_progress)?)
}

fn plan(arguments: &LabJudgeArguments) -> JudgePlan {
    JudgePlan {
        read_dsn: arguments.read_dsn.clone(),
        clients: arguments.clients,
        readers: arguments.readers,
        rate_per_second: arguments.rate,
        duration: arguments.r#for.0,
        heal_limit: arguments.heal.0,
        connect_timeout: arguments.connect_timeout.0,
        reply_timeout: arguments.reply_timeout.map(|time| time.0),
        wait_limit: arguments.wait_limit.0,
        journal: arguments.journal.clone(),
        history: arguments.history.clone(),
        ..JudgePlan::new(arguments.dsn.clone())
    }
}

/// The user's own command line, as the user would run it.
fn fault(arguments: &LabJudgeArguments) -> anyhow::Result<Option<JudgeFault>> {
    let Some(line) = arguments.fault.clone() else { return Ok(None) };
    let at = arguments.fault_at.map_or(arguments.r#for.0 / 3, |time| time.0);
    if at >= arguments.r#for.0 {
        let message =
            format!("--fault-at {} is not within --for {}", TimeSpan(at), arguments.r#for);
        return Err(Usage::error(message, "let the fault begin before the load ends"));
    }
    let action = {
        let line = line.clone();
        move || match UserCommand::start(&line).and_then(UserCommand::wait) {
            Ok(end) => JudgeFaultEnd { success: end.success, status: end.status, output: end.tail },
            Err(error) => {
                let status = format!("{:#}", anyhow::Error::new(error));
                JudgeFaultEnd { success: false, status, output: String::new() }
            }
        }
    };
    Ok(Some(JudgeFault { what: line, at, action: Box::new(action) }))
}

/// Nothing is written before the user has agreed to it.
fn confirm(plan: &JudgePlan, yes: bool, printer: &mut Printer) -> anyhow::Result<()> {
    let label = format!(
        "lab judge writes to database {}: a schema of its own with up to {:.0} rows, {} transactions \
         a second for {}, and removes it at the end",
        plan.dsn.database(),
        plan.rate_per_second * plan.duration.as_secs_f64(),
        plan.rate_per_second,
        TimeSpan(plan.duration)
    );
    if yes {
        return Ok(());
    }
    if !stdin().is_terminal() {
        return Err(Usage::error(label, "say --yes if you mean that database"));
    }
    printer.warn(&format!("pgtoll: {label} ({})", plan.dsn));
    printer.warn("Type yes to continue:");
    let mut answer = String::new();
    stdin().read_line(&mut answer).context("read the answer")?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(Usage::error("nothing was written", "answer yes, or say --yes"))
}
