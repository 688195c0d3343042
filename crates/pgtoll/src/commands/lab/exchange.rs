//! `pgtoll lab exchange`: what waiting for a standby costs, and what it saves.

use std::time::Duration;

use pgtoll_lab::{ExchangePlan, ExchangeSite, exchange};
use pgtoll_record::{ExchangeCase, ExchangeRecord, Status, SynchronousCommit};
use pgtoll_report::{RecordKind, TableOptions};

use super::ground::{LabGround, tell_early_end};
use crate::again::{self, Resolved};
use crate::arguments::LabExchangeArguments;
use crate::commands::output;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &LabExchangeArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let format = output::format_of_output(
        &arguments.output,
        RecordKind::for_record::<ExchangeRecord>().formats(),
    )?;
    let ground = LabGround::begin(&arguments.work_dir)?;
    let installation = ground.installation(arguments.postgres.as_deref(), printer)?;
    ground.tell_leftovers(printer);
    let plan = plan(arguments);
    printer.say(&introduction(&plan));
    let (guard, host) = ground.guard()?;
    let site =
        ExchangeSite { installation: &installation, guard, host, interrupt: &ground.interrupt };
    let mut done = 0;
    let seed = [("--seed", arguments.seed.to_string())];
    let record = exchange(
        &plan,
        site,
        &again::provenance_with(Resolved { options: &seed, ..Resolved::default() }),
        &mut |case, all| {
            done += 1;
            printer.progress(&describe(case), done, all as u64);
            printer.milestone(&describe(case));
        },
    );
    ground.interrupt.check()?;
    tell_early_end(record.ended.as_deref(), printer);
    let table = TableOptions::default();
    output::finish(record, format, &table, arguments.output.output.as_ref(), printer)
}

fn plan(arguments: &LabExchangeArguments) -> ExchangePlan {
    let delays: &[u64] = if arguments.quick { &[0, 20] } else { &[0, 5, 20, 50, 200] };
    let given = arguments.delay.iter().map(|delay| delay.0);
    let delays = if arguments.delay.is_empty() {
        delays.iter().map(|delay| Duration::from_millis(*delay)).collect()
    } else {
        given.collect()
    };
    let (load, judged) = if arguments.quick { (2, 2) } else { (8, 6) };
    ExchangePlan {
        clients: arguments.clients,
        load: Duration::from_secs(load),
        judged: Duration::from_secs(judged),
        delays,
        commits: if arguments.commit.is_empty() {
            SynchronousCommit::ALL.to_vec()
        } else {
            arguments.commit.clone()
        },
        repetitions: if arguments.quick { 1 } else { arguments.repetitions },
        seed: arguments.seed,
        bursts: arguments.bursts,
    }
}

/// Returns the plan in words, with its time.
fn introduction(plan: &ExchangePlan) -> String {
    let cases = plan.delays.len() * plan.commits.len() * plan.repetitions as usize;
    let each = plan.load + plan.judged + OVERHEAD;
    let minutes = each.as_secs_f64() * f64::from(u32::try_from(cases).unwrap_or(u32::MAX)) / 60.0;
    format!(
        "{cases} cases: a primary and a standby with a link between them, {} clients, the primary \
         dies in each; about {minutes:.0} min, about 1 GB of disk",
        plan.clients
    )
}

/// Copying, starting and removing the servers of a case.
const OVERHEAD: Duration = Duration::from_secs(6);

fn describe(case: &ExchangeCase) -> String {
    format!("{} behind {} ms", case.commit.name(), case.delay_ms)
}
