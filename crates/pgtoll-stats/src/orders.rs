//! The order in which the arms of each block take their turns.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// An endless sequence of orders of `0..arms` in which no arm has a better
/// place than another.
///
/// Up to four arms, each batch of `arms`! consecutive orders holds every
/// permutation once, shuffled. With more arms, each batch of `arms` orders is
/// a Latin square, its arms relabelled and its rows shuffled: every arm stands
/// once at every position. With an even number of arms every arm also follows
/// every other arm once, so that what an arm leaves behind is shared out
/// evenly too.
///
/// The same arms and seed give the same orders.
///
/// ```
/// use pgtoll_stats::BalancedOrders;
///
/// let orders: Vec<Vec<usize>> = BalancedOrders::new(2, 42).take(2).collect();
/// assert!(orders.contains(&vec![0, 1]) && orders.contains(&vec![1, 0]));
/// ```
#[derive(Clone, Debug)]
pub struct BalancedOrders {
    arms: usize,
    random: Pcg64,
    batch: VecDeque<Vec<usize>>,
}

impl BalancedOrders {
    /// Starts the sequence that belongs to this seed.
    pub fn new(arms: usize, seed: u64) -> Self {
        Self { arms, random: Pcg64::seed_from_u64(seed), batch: VecDeque::new() }
    }

    fn next_batch(&mut self) -> Vec<Vec<usize>> {
        let mut orders = if self.arms <= ARMS_PERMUTED_MAX {
            permutations(self.arms)
        } else {
            let mut labels: Vec<usize> = (0..self.arms).collect();
            labels.shuffle(&mut self.random);
            latin_square(&labels)
        };
        orders.shuffle(&mut self.random);
        orders
    }
}

impl Iterator for BalancedOrders {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        if self.batch.is_empty() {
            self.batch = self.next_batch().into();
        }
        self.batch.pop_front()
    }
}

/// Four arms have 24 orders, about four seconds of blocks; five would have
/// 120, and a round could end long before they are balanced.
const ARMS_PERMUTED_MAX: usize = 4;

fn permutations(arms: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for arm in 0..arms {
        orders = orders.iter().flat_map(|order| with_inserted(order, arm)).collect();
    }
    orders
}

fn with_inserted(order: &[usize], arm: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..=order.len()).map(move |position| {
        let mut longer = order.to_vec();
        longer.insert(position, arm);
        longer
    })
}

/// Williams's square: the first row zigzags 0, 1, n − 1, 2, n − 2, …, and each
/// further row adds one, modulo n. The steps of the zigzag are all different
/// when n is even, hence the balance of followers.
fn latin_square(labels: &[usize]) -> Vec<Vec<usize>> {
    let arms = labels.len();
    let zigzag = |position: usize| match position {
        odd if odd % 2 == 1 => odd.div_ceil(2),
        even => (arms - even / 2) % arms,
    };
    (0..arms)
        .map(|row| (0..arms).map(|position| labels[(zigzag(position) + row) % arms]).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_arm_and_one_arm() {
        assert_eq!(BalancedOrders::new(0, 1).take(2).collect::<Vec<_>>(), [vec![], vec![]]);
        assert_eq!(BalancedOrders::new(1, 1).take(2).collect::<Vec<_>>(), [vec![0], vec![0]]);
    }

    #[test]
    fn even_squares_balance_followers() {
        let square = BalancedOrders::new(6, 3).take(6).collect::<Vec<_>>();
        let followers: HashSet<(usize, usize)> =
            square.iter().flat_map(|order| order.windows(2).map(|two| (two[0], two[1]))).collect();
        assert_eq!(followers.len(), 6 * 5);
    }

    #[test]
    fn batches_differ() {
        let orders: Vec<Vec<usize>> = BalancedOrders::new(4, 9).take(48).collect();
        assert_ne!(orders[..24], orders[24..]);
        let squares: Vec<Vec<usize>> = BalancedOrders::new(7, 9).take(14).collect();
        assert_ne!(squares[..7], squares[7..]);
    }

    proptest! {
        #[test]
        fn few_arms_take_every_order(arms in 0_usize..=4, seed: u64) {
            let size = (1..=arms).product();
            let orders: Vec<Vec<usize>> = BalancedOrders::new(arms, seed).take(3 * size).collect();
            for batch in orders.chunks(size) {
                let distinct: HashSet<&Vec<usize>> = batch.iter().collect();
                prop_assert_eq!(distinct.len(), size);
                for order in batch {
                    let arms_seen: HashSet<&usize> = order.iter().collect();
                    prop_assert_eq!((arms_seen.len(), order.len()), (arms, arms));
                }
            }
        }

        #[test]
        fn many_arms_stand_equally_often_everywhere(arms in 5_usize..12, seed: u64) {
            let orders: Vec<Vec<usize>> = BalancedOrders::new(arms, seed).take(3 * arms).collect();
            for batch in orders.chunks(arms) {
                let mut times: HashMap<(usize, usize), usize> = HashMap::new();
                for (position, &arm) in batch.iter().flat_map(|order| order.iter().enumerate()) {
                    *times.entry((position, arm)).or_default() += 1;
                }
                prop_assert_eq!(times.len(), arms * arms);
                prop_assert!(times.values().all(|&count| count == 1));
            }
        }

        #[test]
        fn same_seed_same_orders(arms in 0_usize..8, seed: u64) {
            let take = || BalancedOrders::new(arms, seed).take(40).collect::<Vec<_>>();
            prop_assert_eq!(take(), take());
        }
    }
}
