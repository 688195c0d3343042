//! Several clients that work at the same time.

use std::sync::RwLock;
use std::sync::atomic::Ordering;
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use pgtoll_record::Latencies;
use pgtoll_wire::Connection;

use crate::client::SharedProgress;
use crate::{Client, LoadError, Mix, Tally, Until};

/// Clients that work at the same time, a thread and a connection each.
#[derive(Debug)]
pub struct Crowd(Vec<Client>);

/// The work of one of the clients, and when.
struct ClientTally {
    began: Instant,
    ended: Instant,
    tally: Tally,
}

impl Crowd {
    /// A client for each connection, as [`Client::new`] makes them; `:client_id` counts from 0.
    pub fn new(connections: Vec<Connection>, mix: &Mix, scale: u32) -> Result<Self, LoadError> {
        let clients = (0..).zip(connections).map(|(id, connection)| {
            let mut client = Client::new(connection, mix, scale)?;
            client.define("client_id", id);
            Ok(client)
        });
        clients.collect::<Result<_, _>>().map(Self)
    }

    /// From now on every client does what belongs to this seed and its number.
    pub fn reseed(&mut self, seed: u64) {
        for (id, client) in (0..).zip(&mut self.0) {
            // Far from the seeds of other repetitions and steps.
            client.reseed(seed.wrapping_add(id << 48));
        }
    }

    /// From now on the scripts' random functions draw what belongs to this seed and the client's number;
    /// which script comes next, and when, stays as it was.
    pub fn reseed_draws(&mut self, seed: u64) {
        for (id, client) in (0..).zip(&mut self.0) {
            client.reseed_draws(seed.wrapping_add(id << 48));
        }
    }

    /// Lets all clients begin at once and waits for all of them. With a rate, transactions of all
    /// clients together begin at random times, this many a second on average (open loop). A single
    /// client works on the caller's thread.
    ///
    /// When a client fails, the others end after the transaction that they are in.
    pub fn run(&mut self, until: Until, rate_per_second: Option<f64>) -> Result<Tally, LoadError> {
        let clients = self.0.len();
        let shared = SharedProgress::after(if rate_per_second.is_some() { 0 } else { clients });
        if let [client] = self.0.as_mut_slice() {
            return client.run_until(until, rate_per_second, &shared);
        }
        #[expect(clippy::cast_precision_loss, reason = "clients are few")]
        let rate = rate_per_second.map(|rate| rate / clients as f64);
        // Closed until all threads are there.
        let gate = RwLock::new(());
        let work = |client: &mut Client| {
            drop(gate.read());
            let began = Instant::now();
            let done = client.run_until(until, rate, &shared);
            shared.failed.fetch_or(done.is_err(), Ordering::Relaxed);
            Ok(ClientTally { began, ended: Instant::now(), tally: done? })
        };
        thread::scope(|scope| {
            let closed = gate.write();
            let mut threads = Vec::new();
            let mut unstarted = None;
            for client in &mut self.0 {
                match Builder::new().spawn_scoped(scope, || work(client)) {
                    Ok(thread) => threads.push(thread),
                    Err(source) => {
                        shared.failed.store(true, Ordering::Relaxed);
                        let client = threads.len() + 1;
                        unstarted = Some(LoadError::Thread { client, clients, source });
                        break;
                    }
                }
            }
            drop(closed);
            let join = |thread: ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let all: Vec<Result<ClientTally, LoadError>> = threads.into_iter().map(join).collect();
            match unstarted {
                Some(error) => Err(error),
                None => all.into_iter().collect::<Result<Vec<_>, _>>().map(|all| sum(&all)),
            }
        })
    }

    /// The latencies of all transactions since the last call, or since the beginning.
    pub fn take_latencies(&mut self) -> Latencies {
        let mut all = Latencies::new();
        for client in &mut self.0 {
            all.merge(&client.take_latencies());
        }
        all
    }

    /// The clients' connections, for other statements between the load.
    pub fn connections(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.0.iter_mut().map(Client::connection)
    }

    /// Ends the connections.
    pub fn close(self) {
        self.0.into_iter().for_each(Client::close);
    }
}

/// The work of all, from the first one's beginning to the last one's end.
fn sum(all: &[ClientTally]) -> Tally {
    let began = all.iter().map(|one| one.began).min();
    let ended = all.iter().map(|one| one.ended).max();
    Tally {
        transactions: all.iter().map(|one| one.tally.transactions).sum(),
        elapsed: began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began),
        late: all.iter().map(|one| one.tally.late).sum(),
    }
}
