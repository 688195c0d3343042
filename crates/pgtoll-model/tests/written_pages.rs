//! The bounds of net images by written pages (E3) and by counters alone, against servers that are simulated page by page: the same
//! work with and without logged hints.

use std::collections::BTreeSet;

use pgtoll_format::SplitMix64;
use pgtoll_model::prediction::{StatementCounts, WrittenPages, window_images};

const PAGES: usize = 5;

/// A page in shared buffers. Positions in WAL are counted from 1.
#[derive(Clone, Copy, Default)]
struct Page {
    lsn: u64,
    is_dirty: bool,
}

/// A server's pages and images. Both servers of a history do the same work at the same positions.
#[derive(Default)]
struct Server {
    logs_hints: bool,
    pages: [Page; PAGES],
    images: u64,
}

impl Server {
    /// A record that changes the page, or that marks it all-visible where hints are logged.
    fn log(&mut self, page: usize, redo: u64, position: u64) {
        if self.pages[page].lsn <= redo {
            self.images += 1;
        }
        self.pages[page] = Page { lsn: position, is_dirty: true };
    }

    /// A hint is logged where the page was clean.
    fn hint(&mut self, page: usize, redo: u64, position: u64) {
        if self.logs_hints && !self.pages[page].is_dirty && self.pages[page].lsn <= redo {
            self.log(page, redo, position);
        }
        self.pages[page].is_dirty = true;
    }

    fn mark_visible(&mut self, page: usize, redo: u64, position: u64) {
        if self.logs_hints {
            self.log(page, redo, position);
        }
        self.pages[page].is_dirty = true;
    }
}

/// What a window has: from the end of a checkpoint to that of the next one; changes and images since the redo
/// point of the first.
#[derive(Default)]
struct Window {
    checkpointed: u64,
    evicted: u64,
    carried: u64,
    changed: BTreeSet<usize>,
    visible: BTreeSet<usize>,
}

/// The second checkpoint cycle of a random history.
struct SecondCycle {
    /// What predict counts of it where it reads WAL.
    pages: WrittenPages,
    /// What predict counts of it without WAL.
    counts: StatementCounts,
    net_images: i64,
}

#[expect(clippy::cast_possible_truncation, reason = "the place of a page")]
fn second_cycle(random: &mut SplitMix64, is_spread: bool) -> SecondCycle {
    let mut with = Server { logs_hints: true, ..Server::default() };
    let mut without = Server::default();
    let mut position = 1;
    let mut redo = 0;
    let mut window = Window::default();
    let mut net_before = 0;
    let mut images_before = 0;
    for cycle in 0..3 {
        let mut pending: Vec<usize> =
            (0..PAGES).filter(|page| without.pages[*page].is_dirty).collect();
        redo = if cycle == 0 { redo } else { position };
        if cycle == 1 {
            window = Window { carried: pending.len() as u64, ..Window::default() };
            net_before = net(&with, &without);
            images_before = without.images;
        }
        if cycle == 2 {
            window.checkpointed = pending.len() as u64;
            let pages = WrittenPages {
                checkpointed: window.checkpointed,
                evicted: window.evicted,
                carried: if is_spread { window.carried } else { 0 },
                changed: window.changed.len() as u64,
                visible: window.visible.difference(&window.changed).count() as u64,
                ..WrittenPages::default()
            };
            let counts = StatementCounts {
                select_dirtied: None,
                written: pages.written(),
                evicted: pages.evicted,
                images: without.images - images_before,
                carried: pages.carried,
                may_be_marked: !window.visible.is_empty(),
            };
            return SecondCycle { pages, counts, net_images: net(&with, &without) - net_before };
        }
        if !is_spread {
            pending.drain(..).for_each(|page| write(&mut with, &mut without, page));
        }
        for _ in 0..random.below(24) {
            position += 1;
            if let Some(page) = pending.pop_if(|_| random.below(2) == 0) {
                write(&mut with, &mut without, page);
            }
            let page = random.below(PAGES as u64) as usize;
            match random.below(8) {
                0 | 1 => {
                    for server in [&mut with, &mut without] {
                        server.log(page, redo, position);
                    }
                    window.changed.insert(page);
                }
                2..=4 => {
                    for server in [&mut with, &mut without] {
                        server.hint(page, redo, position);
                    }
                }
                5 => {
                    for server in [&mut with, &mut without] {
                        server.mark_visible(page, redo, position);
                    }
                    window.visible.insert(page);
                }
                // What is evicted while a checkpoint runs counts for the window before.
                6 if pending.is_empty() && without.pages[page].is_dirty => {
                    write(&mut with, &mut without, page);
                    window.evicted += 1;
                }
                _ => {}
            }
        }
        pending.drain(..).for_each(|page| write(&mut with, &mut without, page));
    }
    unreachable!("the third cycle returns")
}

/// Both servers have the same dirty pages.
fn write(with: &mut Server, without: &mut Server, page: usize) {
    (with.pages[page].is_dirty, without.pages[page].is_dirty) = (false, false);
}

fn net(with: &Server, without: &Server) -> i64 {
    with.images.cast_signed() - without.images.cast_signed()
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a few images")]
fn net_images_are_within_the_bounds_of_written_pages() {
    let mut random = SplitMix64(20_261_128);
    let mut reached = [0; 2];
    for history in 0..1_000_000 {
        let SecondCycle { pages, counts, net_images } = second_cycle(&mut random, history % 2 == 1);
        let net = net_images as f64;
        for (bounds, reached) in
            [pages.images(), window_images(&counts)].into_iter().zip(&mut reached)
        {
            let is_within = bounds.lower <= net && net <= bounds.upper;
            assert!(is_within, "{history}: {pages:?} {counts:?} {bounds:?} {net}");
            *reached += u64::from(bounds.lower < bounds.upper && (net - bounds.upper).abs() < 0.5);
        }
    }
    // Neither upper bound is so wide that no history comes to it.
    assert!(reached.iter().all(|reached| *reached > 10_000), "{reached:?}");
}
