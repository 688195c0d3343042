//! The scripts that repmgrd calls: the promotion hook, and the notification command.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pgtoll_cluster::{Cluster, Guard, Pgbouncer, Repmgr, RunningPgbouncer};

use crate::failover::context::DATABASE;
use crate::failover::error::FailoverError;
use crate::failover::fault::{BESIDE_PRIMARY, HANDOVER};

/// The file in which both scripts report, a line each.
pub(super) const EVENTS: &str = "events";

/// Writes the script that promotes the standby and leads clients to it.
pub(super) fn write_hook(
    guard: &mut Guard,
    repmgr: &Repmgr,
    configuration: &Path,
    standby: &Cluster,
    poolers: &[RunningPgbouncer],
) -> Result<(), FailoverError> {
    let psql = standby.client("psql")?;
    let directory = guard.directory().to_owned();
    let mut text = format!(
        "#!/bin/sh\n\
         # Promotes the standby, then leads clients to it. $1: {HANDOVER} keeps waiting clients,\n\
         # {BESIDE_PRIMARY} promotes without repmgr.\n\
         report() {{ echo \"$(date +%s.%N) hook $1\" >> {directory}/{EVENTS}; }}\n\
         report 'promotion begins'\n\
         # Nobody is left to confirm commits.\n\
         {psql} -X -q -h {standby} -p 5432 -U postgres -d postgres \\\n\
         \x20   -c \"ALTER SYSTEM SET synchronous_standby_names = ''\" \\\n\
         \x20   -c 'SELECT pg_reload_conf()'\n\
         if [ \"$1\" = {BESIDE_PRIMARY} ]; then\n\
         \x20   {psql} -X -q -h {standby} -p 5432 -U postgres -d postgres -c 'SELECT pg_promote()'\n\
         else {repmgr} -f {configuration} standby promote\n\
         fi || {{ report 'promotion failed'; exit 1; }}\n\
         report promoted\n\
         if [ \"$1\" = {HANDOVER} ]; then set -- -c RELOAD\n\
         else set -- -c RELOAD -c 'KILL {DATABASE}'; fi\n",
        directory = directory.display(),
        psql = psql.display(),
        standby = standby.directory().display(),
        repmgr = repmgr.program().display(),
        configuration = configuration.display(),
    );
    text.push_str(&routes(&psql, standby, poolers)?);
    text.push_str("[ \"$reached\" = yes ] || { report 'pooler failed'; exit 1; }\nreport routed\n");
    guard.write(&directory.join(hook_name(standby.name())), text)?;
    Ok(())
}

/// Writes the script by which an administrator leads clients to the new primary whom the hook did not reach.
pub(super) fn write_route(
    guard: &mut Guard,
    server: &Cluster,
    poolers: &[RunningPgbouncer],
) -> Result<PathBuf, FailoverError> {
    let psql = server.client("psql")?;
    let directory = guard.directory().to_owned();
    let text = format!(
        "#!/bin/sh\n\
         report() {{ echo \"$(date +%s.%N) administrator $1\" >> {}/{EVENTS}; }}\n\
         set -- -c RELOAD -c 'KILL {DATABASE}'\n{}report routed\n",
        directory.display(),
        routes(&psql, server, poolers)?
    );
    let path = directory.join(format!("route-to-{}.sh", server.name()));
    guard.write(&path, text)?;
    Ok(path)
}

/// Leads the clients of these poolers to a server, by the console's commands in `$@`.
fn routes(
    psql: &Path,
    server: &Cluster,
    poolers: &[RunningPgbouncer],
) -> Result<String, FailoverError> {
    let mut text = String::new();
    for pooler in poolers {
        let _ = write!(
            text,
            "cat > {databases}.new <<'END'\n\
             {entry}END\n\
             mv -f {databases}.new {databases}\n\
             if timeout {CONSOLE_S} {psql} -X -q -h {bouncer} -p {port} -U postgres \\\n\
             \x20   -d pgbouncer \"$@\" -c 'RESUME {DATABASE}'\n\
             then reached=yes; else report '{name} not reached'; fi\n",
            name = pooler.name(),
            databases = pooler.databases_file().display(),
            entry = pooler.databases(server.directory())?,
            psql = psql.display(),
            bouncer = pooler.directory().display(),
            port = Pgbouncer::PORT,
        );
    }
    Ok(text)
}

/// Seconds that a pooler may take to answer: one on a frozen host does not.
const CONSOLE_S: u32 = 5;

/// The file of the script that promotes the server of this name.
pub(super) fn hook_name(server: &str) -> String {
    format!("promote-{server}.sh")
}

/// Writes the script that repmgrd tells of events.
pub(super) fn write_notification(guard: &mut Guard) -> Result<(), FailoverError> {
    let directory = guard.directory().to_owned();
    let text = format!(
        "#!/bin/sh\n\
         # $1: node, $2: event, $3: success.\n\
         echo \"$(date +%s.%N) node$1 $2 $3\" >> {}/{EVENTS}\n",
        directory.display()
    );
    guard.write(&directory.join(NOTIFICATION), text)?;
    guard.write(&directory.join(EVENTS), String::new())?;
    Ok(())
}

/// The command line that repmgrd promotes the server of this name with.
pub(super) fn promote_command(guard: &Guard, server: &str) -> String {
    format!("/bin/sh {}", guard.directory().join(hook_name(server)).display())
}

/// The command line that repmgrd tells of events.
pub(super) fn notification_command(guard: &Guard) -> String {
    format!("/bin/sh {} %n %e %s", guard.directory().join(NOTIFICATION).display())
}

const NOTIFICATION: &str = "notify.sh";
