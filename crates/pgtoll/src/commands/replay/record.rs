//! `pgtoll replay record`: work captured from the protocol while it continues.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::time::Duration;

use anyhow::Context as _;
use pgtoll_record::{LogExamination, Provenance, Status};
use pgtoll_replay::{
    CaptureProgress, CapturedWorkload, ReplayError, WireCapture, WireCaptured, check, examination,
};
use pgtoll_report::{RecordKind, TableOptions};
use pgtoll_system::Interrupt;
use pgtoll_system::create_private;
use pgtoll_wire::{ClientListener, Dsn};

use crate::again;
use crate::arguments::{OutputOptions, ReplayRecordArguments};
use crate::commands::output;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(
    arguments: &ReplayRecordArguments,
    printer: &mut Printer,
) -> anyhow::Result<Status> {
    let on_stdout = OutputOptions { format: arguments.format, output: None };
    let format =
        output::format_of_output(&on_stdout, RecordKind::for_record::<LogExamination>().formats())?;
    let wanted = arguments.to.target_session_attrs();
    if wanted != "any" {
        let message = format!("--to does not accept target_session_attrs={wanted}");
        return Err(Usage::error(message, "name the one server that clients work on"));
    }
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let listening = || format!("listen at {}", arguments.listen);
    let listener = ClientListener::bind(&arguments.listen).with_context(listening)?;
    let file = plan_file(arguments)?;
    let provenance = again::provenance();
    let captured = capture(arguments, &listener, &file, &provenance, &interrupt, printer)?;
    drop(listener);
    // A device has nothing to be synced.
    let synced = if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        file.sync_data()
    } else {
        Ok(())
    };
    let plan = arguments.plan.to_string_lossy().into_owned();
    let lost = captured.lost.or(synced.err().map(|error| error.to_string()));
    if let Some(reason) = &lost {
        printer.warn(&format!("pgtoll: {plan} is not complete, and cannot be replayed: {reason}"));
    }
    let untracked = captured.header.wire.as_ref().map_or(0, |wire| wire.sessions_untracked);
    let workload = CapturedWorkload { header: captured.header, ..CapturedWorkload::default() };
    let findings = match check(&workload.header) {
        Err(ReplayError::NoStatements { .. }) => {
            printer.warn("pgtoll: no statement was captured");
            Vec::new()
        }
        found => found?,
    };
    let mut record = examination(provenance, &workload.header, findings);
    record.plan = lost.is_none().then_some(plan);
    record.is_partial = lost.is_some() || untracked > 0;
    output::finish(record, format, &TableOptions::default(), None, printer)
}

/// As far as a session of this role shows.
fn is_pooled(to: &Dsn) -> bool {
    let session = to.with_default_connect_timeout(PROBE_TIMEOUT).connect();
    session.is_ok_and(|mut session| session.is_pooled().unwrap_or(false))
}

const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

fn plan_file(arguments: &ReplayRecordArguments) -> anyhow::Result<File> {
    let path = arguments.plan.display();
    match create_private(&arguments.plan) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let hint = "a capture writes to a new file: name another one, or remove this one";
            Err(Usage::error(format!("{path} exists already"), hint))
        }
        made => made.with_context(|| format!("make {path}")),
    }
}

/// Captures until a signal comes. A plan that cannot be written any more is reported at once.
fn capture(
    arguments: &ReplayRecordArguments,
    listener: &ClientListener,
    file: &File,
    provenance: &Provenance,
    interrupt: &Interrupt,
    printer: &Printer,
) -> anyhow::Result<WireCaptured> {
    let address = listener.address();
    if !address.is_local() {
        printer.warn(&format!(
            "pgtoll: other hosts can connect to {address}, and what they send, passwords too, comes \
             unencrypted"
        ));
    }
    if is_pooled(&arguments.to) {
        printer.warn(
            "pgtoll: warning: a connection pooler is at --to: the plan has a session for each of its \
             clients, and a replay takes as many connections\n  hint: capture between the pooler and the \
             server, or replay through a pooler too",
        );
    }
    let mut is_begun = false;
    let mut is_told = false;
    let mut watch = |progress: CaptureProgress<'_>| {
        if !is_begun {
            is_begun = true;
            printer.say(&format!("pgtoll: listening at {address}; Ctrl-C ends the capture"));
        }
        if let Some(reason) = progress.lost.filter(|_| !is_told) {
            is_told = true;
            printer.warn(&format!(
                "pgtoll: capture stopped: {reason}. Connections continue until Ctrl-C"
            ));
        }
    };
    let copy_data_max = arguments.copy_data.map_or(0, |size| size.0);
    let capture = WireCapture {
        listener,
        dsn: &arguments.to,
        provenance,
        copy_data_max: usize::try_from(copy_data_max).unwrap_or(usize::MAX),
    };
    let captured = capture.run(BufWriter::new(file), interrupt, &mut watch);
    if captured.is_err() && file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        // Nothing is in it.
        let _ = std::fs::remove_file(&arguments.plan);
    }
    Ok(captured?)
}
