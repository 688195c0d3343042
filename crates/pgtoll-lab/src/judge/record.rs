//! From what a run left to its record.

use std::collections::BTreeMap;

use pgtoll_record::{
    AcknowledgementGap, JUDGE_SCHEMA, JudgeRecord, JudgeVerdict, JudgedEvent, JudgedFault,
    LongForkProbe, NodeIdentity, Provenance, ReadChecks,
};

use super::events::{JournalHeader, RunEvent};
use super::node::identity;
use super::observations::{Observations, RunFrame};
use super::shared::nanoseconds;
use super::verdict::{Sets, seconds};

/// The plan of a run, and its events.
#[derive(Clone, Debug)]
pub(crate) struct RunHistory {
    pub(crate) header: JournalHeader,
    events: Vec<RunEvent>,
}

/// The final reading.
#[derive(Debug, Default)]
pub(crate) struct FinalReading {
    pub(crate) observations: Observations,
    /// `None` where the ids could not be read.
    pub(crate) sets: Option<Sets>,
    /// Why they could not.
    pub(crate) unread: Option<String>,
    pub(crate) read_on: Option<NodeIdentity>,
    /// A finding about the servers as such.
    pub(crate) finding: Option<String>,
    /// The table itself was not there.
    pub(crate) table_lost: bool,
    /// Why the schema stays; `None` where it does not.
    pub(crate) schema_left: Option<String>,
    /// The directory of the journals.
    pub(crate) journal: Option<String>,
}

impl RunHistory {
    pub(crate) fn new(header: JournalHeader, events: Vec<RunEvent>) -> Self {
        Self { header, events }
    }

    fn find<T>(&self, event: impl Fn(&RunEvent) -> Option<T>) -> Option<T> {
        self.events.iter().find_map(event)
    }

    /// Returns the facts of the run beside the journals.
    pub(crate) fn frame(&self, last_node: Option<NodeIdentity>) -> RunFrame {
        let design = &self.header.design;
        let limit = std::time::Duration::try_from_secs_f64(design.wait_limit_s);
        let mut nodes = Vec::new();
        let mut error_words = BTreeMap::new();
        for event in &self.events {
            match event {
                RunEvent::Node { number, text } => {
                    // Two threads may have told two of them in another order.
                    let at = usize::from(*number);
                    nodes.resize(nodes.len().max(at + 1), NodeIdentity::default());
                    nodes[at] = identity(text);
                }
                RunEvent::Error { code, message } => {
                    error_words.entry(code.clone()).or_insert_with(|| message.clone());
                }
                _ => {}
            }
        }
        RunFrame {
            clients: design.clients,
            rate_per_second: design.rate_per_second,
            bursts: design.bursts,
            wait_limit_ns: limit.map_or(u64::MAX, nanoseconds),
            sides: design.sides.clone(),
            fault_ns: self.fault_ns(),
            heal_from_ns: self.find(|event| match event {
                RunEvent::HealBegan { at_ns } => Some(*at_ns),
                _ => None,
            }),
            ended_ns: self.ended_ns(),
            nodes,
            last_node,
            error_words,
        }
    }

    /// When the last client ended; of a run that died, when something happened last.
    fn ended_ns(&self) -> u64 {
        let time = |event: &RunEvent| match event {
            RunEvent::Ended { at_ns }
            | RunEvent::HealBegan { at_ns }
            | RunEvent::Interrupted { at_ns, .. }
            | RunEvent::FaultBegan { at_ns, .. }
            | RunEvent::FaultEnded { at_ns, .. } => Some(*at_ns),
            _ => None,
        };
        self.events.iter().filter_map(time).max().unwrap_or_default()
    }

    /// When the clients began (RFC 3339).
    fn began(&self) -> String {
        let began = self.find(|event| match event {
            RunEvent::Began { at } => Some(at.clone()),
            _ => None,
        });
        began.unwrap_or_else(|| self.header.began.clone())
    }

    fn fault_ns(&self) -> Option<u64> {
        self.find(|event| match event {
            RunEvent::FaultBegan { at_ns, .. } => Some(*at_ns),
            _ => None,
        })
    }

    /// Returns the time that splits losses: the start of the fault, or else of the longest outage.
    pub(crate) fn split_ns(&self, outage: Option<&AcknowledgementGap>) -> Option<u64> {
        let fault = self.fault_ns();
        let began = outage.and_then(|gap| {
            std::time::Duration::try_from_secs_f64(gap.began_s).ok().map(nanoseconds)
        });
        // The acknowledgement that the outage follows was before it, rounding included.
        fault.or_else(|| began.map(|began| began.saturating_add(1000)))
    }

    fn fault(&self) -> Option<JudgedFault> {
        let mut fault: Option<JudgedFault> = None;
        for event in &self.events {
            match (event, &mut fault) {
                (RunEvent::FaultBegan { at_ns, what: subject }, None) => {
                    let label = subject.clone();
                    fault = Some(JudgedFault {
                        what: label,
                        began_s: seconds(*at_ns),
                        ..JudgedFault::default()
                    });
                }
                (RunEvent::FaultEnded { at_ns, success, status, output }, Some(fault)) => {
                    fault.ended_s = Some(seconds(*at_ns));
                    fault.success = *success;
                    fault.status = Some(status.clone());
                    fault.output.clone_from(output);
                }
                _ => {}
            }
        }
        fault
    }

    fn judged_events(&self) -> Vec<JudgedEvent> {
        let judged = |event: &RunEvent| {
            let (at_ns, label) = match event {
                RunEvent::FaultBegan { at_ns, .. } => (*at_ns, "fault begins".to_owned()),
                RunEvent::FaultEnded { at_ns, status, .. } => {
                    (*at_ns, format!("fault ends ({status})"))
                }
                RunEvent::HealBegan { at_ns } => (*at_ns, "load ends, healing begins".to_owned()),
                RunEvent::Interrupted { at_ns, signal } => {
                    (*at_ns, format!("interrupted by {signal}"))
                }
                RunEvent::Ended { at_ns } => (*at_ns, "end".to_owned()),
                _ => return None,
            };
            Some(JudgedEvent { at_s: seconds(at_ns), what: label })
        };
        self.events.iter().filter_map(judged).collect()
    }

    fn reads(&self) -> Option<ReadChecks> {
        let mut checks = self.find(|event| match *event {
            RunEvent::Reads { reads, failed, stale, stalest, backwards } => Some(ReadChecks {
                dsn: self.header.read_dsn.clone(),
                reads,
                failed,
                stale,
                stalest_transactions: stalest,
                backwards,
                long_fork: None,
            }),
            _ => None,
        })?;
        checks.long_fork = self.find(|event| match *event {
            RunEvent::Pairs { pairs, half_seen, forks } => {
                Some(LongForkProbe { pairs, half_seen, forks })
            }
            _ => None,
        });
        Some(checks)
    }

    /// Why the run ended before its time.
    fn ended(&self) -> Option<String> {
        let interrupted = self.find(|event| match event {
            RunEvent::Interrupted { signal, .. } => Some(format!("interrupted by {signal}")),
            _ => None,
        });
        let is_ended = self.events.iter().any(|event| matches!(event, RunEvent::Ended { .. }));
        interrupted.or_else(|| (!is_ended).then(|| "pgtoll itself was killed".to_owned()))
    }
}

pub(crate) fn judge_record(
    history: &RunHistory,
    conclusion: FinalReading,
    provenance: Provenance,
) -> JudgeRecord {
    let Observations { transactions, outage, mut sides, clients, bin_s, errors, nodes } =
        conclusion.observations;
    let verdict = conclusion.sets.zip(conclusion.read_on).map(|(found, read_on)| {
        let Sets { rows, lost, lost_by_side, recovered, ghosts, phantoms, duplicates } = found;
        for (side, lost) in sides.iter_mut().zip(lost_by_side) {
            side.lost = Some(lost);
        }
        JudgeVerdict { read_on, rows, lost, recovered, ghosts, phantoms, duplicates }
    });
    let mut record = JudgeRecord {
        schema: JUDGE_SCHEMA.to_owned(),
        pgtoll: provenance.version,
        command: provenance.command,
        made: provenance.made,
        server: history.header.server.clone(),
        design: history.header.design.clone(),
        began: history.began(),
        seconds: seconds(history.ended_ns()),
        ended: history.ended(),
        fault: history.fault(),
        events: history.judged_events(),
        transactions,
        verdict,
        outage,
        sides,
        clients,
        bin_s,
        errors,
        nodes,
        reads: history.reads(),
        journal: conclusion.journal,
        findings: Vec::new(),
        notes: Vec::new(),
    };
    record.findings = findings(&record);
    record.findings.extend(conclusion.finding);
    record.notes = notes(&record);
    if conclusion.table_lost {
        record.notes.push(
            "the judge's own table was not there in the end: it was lost with all that \
                           was in it"
                .to_owned(),
        );
    }
    let name = &record.design.schema_name;
    if let Some(reason) = conclusion.unread {
        let directory = record.journal.clone().unwrap_or_default();
        record.notes.push(format!(
            "which transactions are there could not be read: {reason}; schema {name} stays; when the \
             server is back, judge with --from {directory}"
        ));
    }
    if let Some(reason) = conclusion.schema_left {
        record.notes.push(format!(
            "schema {name} could not be removed: {reason}; remove it: DROP SCHEMA {name} CASCADE"
        ));
    }
    record
}

/// Returns the findings about the server, the worst first.
fn findings(record: &JudgeRecord) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found = |count: u64, one: &str, many: &str| match count {
        0 => {}
        1 => findings.push(format!("1 {one}")),
        count => findings.push(format!("{count} {many}")),
    };
    if let Some(verdict) = &record.verdict {
        found(
            verdict.lost.count,
            "acknowledged transaction is lost",
            "acknowledged transactions are lost",
        );
        found(
            verdict.ghosts.count,
            "transaction was reported failed and is there",
            "transactions were reported failed and are there",
        );
        found(
            verdict.phantoms.count,
            "row is there that no client sent",
            "rows are there that no client sent",
        );
        found(
            verdict.duplicates.count,
            "transaction is there more than once",
            "transactions are there more than once",
        );
    }
    let after = record.nodes.iter().map(|node| node.after_successor).sum();
    found(
        after,
        "transaction was acknowledged by an old primary after its successor (split brain)",
        "transactions were acknowledged by an old primary after its successor (split brain)",
    );
    let has_healed = record.events.iter().any(|event| event.what.ends_with("healing begins"));
    if has_healed && record.ended.is_none() {
        let unserved = record.clients.iter().filter(|client| client.healed_s.is_none()).count();
        let limit = record.design.heal_limit_s;
        found(
            unserved as u64,
            &format!("client was not served again within {limit} s"),
            &format!("clients were not served again within {limit} s"),
        );
    }
    if let Some(reads) = record.reads.as_ref().filter(|reads| reads.dsn.is_none()) {
        found(
            reads.stale,
            "read lacked what had been acknowledged before",
            "reads lacked what had been acknowledged before",
        );
    }
    findings
}

fn notes(record: &JudgeRecord) -> Vec<String> {
    let mut notes = Vec::new();
    match &record.fault {
        Some(fault) if fault.status.is_none() => {
            notes.push("the fault had not ended when the run did, and was left alone".to_owned());
        }
        Some(fault) if !fault.success => {
            notes.push("the fault did not end as it should: was it one?".to_owned());
        }
        _ => {}
    }
    if record.transactions.unreplicated > 0 {
        notes.push(format!(
            "acknowledgements with the warning that standbys were not awaited: {}",
            record.transactions.unreplicated
        ));
    }
    if record.nodes.iter().any(|node| node.identity.timeline.is_none()) {
        notes.push(
            "the servers do not say which timeline they write, so a restored or promoted server is recognised by its address only"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{IdSet, JudgeDesign, JudgedServer, LostTransactions};

    use super::*;

    fn history(events: Vec<RunEvent>) -> RunHistory {
        let design = JudgeDesign { clients: 1, rate_per_second: 1.0, ..JudgeDesign::default() };
        RunHistory::new(JournalHeader::new(1, JudgedServer::default(), design), events)
    }

    fn provenance() -> Provenance {
        Provenance { version: "1".into(), command: Vec::new(), made: String::new() }
    }

    #[test]
    fn what_is_against_the_server_is_found() {
        let sets = Sets {
            lost: LostTransactions { count: 2, ..LostTransactions::default() },
            ghosts: IdSet { count: 1, ..IdSet::default() },
            ..Sets::default()
        };
        let conclusion = FinalReading {
            sets: Some(sets),
            read_on: Some(NodeIdentity::default()),
            ..FinalReading::default()
        };
        let record =
            judge_record(&history(vec![RunEvent::Ended { at_ns: 5 }]), conclusion, provenance());
        let expected = [
            "2 acknowledged transactions are lost",
            "1 transaction was reported failed and is there",
        ];
        assert_eq!(record.findings, expected);
        assert_eq!(record.ended, None);
    }

    #[test]
    fn a_run_that_died_says_so_and_a_fault_that_did_not_end_too() {
        let events = vec![RunEvent::FaultBegan { at_ns: 3_000_000_000, what: "x".into() }];
        let record = judge_record(&history(events), FinalReading::default(), provenance());
        assert_eq!(record.ended.as_deref(), Some("pgtoll itself was killed"));
        let fault = record.fault.unwrap();
        assert_eq!((fault.began_s, fault.status), (3.0, None));
        assert!(record.notes[0].contains("had not ended"), "{:?}", record.notes);
    }
}
