//! `pgtoll lab setup`: which engines are there, and the others from the distribution's packages.

use pgtoll_record::Status;
use std::io::{IsTerminal as _, stdin};
use std::path::PathBuf;

use anyhow::Context as _;
use nix::unistd::geteuid;
use pgtoll_cluster::{
    EngineSurvey, Finder, Guard, GuardOptions, ServerUser, TESTED_ENGINES, apt_install, apt_line,
    is_debian,
};
use pgtoll_system::Interrupt;

use crate::arguments::LabSetupArguments;
use crate::mistakes::Usage;
use crate::printer::Printer;

pub(crate) fn run(arguments: &LabSetupArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let survey = survey(&interrupt)?;
    let packages = survey.missing_packages();
    if packages.is_empty() {
        show(&survey, &interrupt, printer)?;
        return Ok(Status::Done);
    }
    install(&packages, arguments.yes, printer)?;
    let now = self::survey(&interrupt)?;
    show(&now, &interrupt, printer)?;
    let missing = now.missing_packages();
    if !missing.is_empty() {
        let message = format!("still missing after the installation: {}", missing.join(" "));
        return Err(Usage::error(
            message,
            "`pgtoll postgres list` shows the servers that are found",
        ));
    }
    Ok(Status::Done)
}

fn survey(interrupt: &Interrupt) -> anyhow::Result<EngineSurvey> {
    let found = Finder::of_this_program(interrupt).installed()?;
    Ok(EngineSurvey::from_installations(&found.installations))
}

/// Shows the installed engines, a line each.
fn show(survey: &EngineSurvey, interrupt: &Interrupt, printer: &mut Printer) -> anyhow::Result<()> {
    if let Some(server) = &survey.installation {
        let version = &server.version;
        let bin = server.bin.display();
        printer.data(&format!("PostgreSQL {version} ({bin})\n"));
    }
    let options = GuardOptions::of_this_program(PathBuf::from("/var/tmp"), ServerUser::choose()?);
    let mut guard = Guard::begin(&options, interrupt)?;
    for version in survey.versions(&mut guard)? {
        let is_tested = TESTED_ENGINES.contains(&version.as_str());
        let note = if is_tested { "" } else { " (not the version that pgtoll is tested with)" };
        printer.data(&format!("{version}{note}\n"));
    }
    guard.finish()?;
    Ok(())
}

/// Installs the packages, when the user agrees and may.
fn install(packages: &[String], yes: bool, printer: &Printer) -> anyhow::Result<()> {
    let missing = format!("missing: {}", packages.join(" "));
    let Some(line) = apt_line(packages).filter(|_| is_debian()) else {
        let hint = "apt is missing: install repmgr and pg_auto_failover for your server, Patroni \
                    with etcd and HAProxy, PgBouncer, Pgpool-II and Redis from your distribution's packages";
        return Err(Usage::error(missing, hint));
    };
    if !geteuid().is_root() {
        let hint = format!("run `sudo pgtoll lab setup`, or: apt install {}", packages.join(" "));
        return Err(Usage::error(missing, hint));
    }
    printer.warn(&format!("pgtoll: {missing}; to be run: {line}"));
    if !yes && !is_agreed(printer)? {
        return Err(Usage::error("nothing was installed", "say --yes, or answer yes"));
    }
    let end = apt_install(packages)?;
    if !end.success {
        let last = end.tail.trim_end().lines().next_back().unwrap_or_default();
        let message = format!("apt-get failed ({}): {last}", end.status);
        return Err(Usage::error(message, "`apt-get update` renews the list of packages"));
    }
    Ok(())
}

fn is_agreed(printer: &Printer) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        return Ok(false);
    }
    printer.warn("Type yes to continue:");
    let mut answer = String::new();
    stdin().read_line(&mut answer).context("read the answer")?;
    Ok(answer.trim() == "yes")
}
