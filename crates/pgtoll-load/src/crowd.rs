//! Several clients that work at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pgtoll_record::Latencies;
use pgtoll_wire::Connection;

use crate::{Client, LoadError, Mix, Tally, Until};

/// Clients that work at the same time, a thread and a connection each.
#[derive(Debug)]
pub struct Crowd(Vec<Client>);

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

    /// Lets all clients begin at once and waits for all of them. With a rate, transactions of all
    /// clients together begin at random times, so many a second on average (open loop).
    ///
    /// When a client fails, the others end after the transaction that they are in.
    pub fn run(&mut self, until: Until, rate_per_second: Option<f64>) -> Result<Tally, LoadError> {
        #[expect(clippy::cast_precision_loss, reason = "clients are few")]
        let rate = rate_per_second.map(|rate| rate / self.0.len() as f64);
        let (together, failed) = (Barrier::new(self.0.len()), AtomicBool::new(false));
        let work = |client: &mut Client| {
            together.wait();
            let began = Instant::now();
            let done = client.run_until(until, rate, &failed);
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
            Ok((began, done?))
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                self.0.iter_mut().map(|client| scope.spawn(|| work(client))).collect();
            let mut all = Ok(Tally { transactions: 0, elapsed: Duration::ZERO, late: 0 });
            // The clients tell when the first of them began: who waits for them may be told late.
            let mut first: Option<Instant> = None;
            for thread in threads {
                let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all = all.and_then(|all| {
                    let (began, one) = one?;
                    first = Some(first.map_or(began, |first| first.min(began)));
                    let transactions = all.transactions + one.transactions;
                    Ok(Tally { transactions, late: all.late + one.late, ..all })
                });
            }
            let elapsed = first.map_or(Duration::ZERO, |first| first.elapsed());
            all.map(|all| Tally { elapsed, ..all })
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
