//! The replay beside one that is as simple as it can be: a setting at a time, all of the past kept.

use std::collections::BTreeMap;

use pgtoll_format::Lsn;
use pgtoll_format::wal::Compression;
use pgtoll_model::{
    BlockKey, Geometry, ImageCompression, Reference, Rule, Schedule, Settings, WhatIf,
    WhatIfOutcome, checkpoint_segments,
};
use proptest::prelude::*;

const GEOMETRY: Geometry = Geometry { segment_bytes: 1 << 20, page_bytes: 8192 };
/// Bytes of a segment that records can use.
const USABLE: u64 = 128 * (8192 - 24) - 16;
const OWN: u64 = 176;
const BEGIN: Lsn = Lsn((1 << 20) + 40);

#[derive(Clone, Debug)]
enum Step {
    Record { bytes: u32, references: Vec<Reference> },
    Time { later_us: i64 },
    Checkpoint { is_forced: bool },
    Switch,
}

/// What is said above, word by word.
fn plain(settings: &Settings, steps: &[Step]) -> WhatIfOutcome {
    let mut out = WhatIfOutcome::default();
    let mut position = USABLE;
    let mut redo = USABLE;
    let mut now = 0_i64;
    let mut checkpoint_us = 0_i64;
    let mut idle = position;
    // Boundaries and changes by the number of the step; 0 is before the beginning.
    let mut boundary = 1;
    let mut changes: BTreeMap<BlockKey, Vec<usize>> = BTreeMap::new();
    let (segments, timeout_us) = match settings.schedule {
        Schedule::Source => (u64::MAX / (1 << 30), i64::MAX),
        Schedule::Rule { max_wal_size, timeout_us, completion_target } => {
            let checkpoint_segment = checkpoint_segments(max_wal_size, 1 << 20, completion_target);
            (checkpoint_segment, timeout_us)
        }
    };
    for (number, step) in (2..).zip(steps) {
        let mut forced = false;
        match step {
            Step::Record { bytes, references } => {
                let mut length = i64::from(*bytes);
                let mut is_needed = true;
                for reference in references {
                    let is_hint = matches!(reference.rule, Rule::Hint | Rule::WithHints);
                    let past = changes.entry(reference.block).or_default();
                    let last = past.last().copied();
                    // Of a block that was never seen the source tells.
                    let needs = match (reference.rule, last) {
                        (Rule::Init, _) => false,
                        (Rule::Always, _) | (_, None) => reference.image.is_some(),
                        (_, Some(last)) => last < boundary,
                    };
                    let counts = !is_hint || settings.hints;
                    let image = reference.image.unwrap_or([100; 5])[settings.compression.index()];
                    if reference.rule == Rule::Hint {
                        is_needed = needs && settings.hints;
                    }
                    let logs = settings.full_page_writes || reference.rule == Rule::Always;
                    if needs && counts && logs {
                        let data =
                            if reference.rule == Rule::Always { 0 } else { reference.data_bytes };
                        length += i64::from(image) - i64::from(data);
                        out.images += 1;
                        out.image_bytes += u64::from(image);
                    }
                    // An image of a hint that nobody logs says that the change was long ago.
                    match (counts, last, reference.image) {
                        (true, ..) | (false, None, None) => past.push(number),
                        (false, None, Some(_)) => past.push(0),
                        (false, Some(_), _) => {}
                    }
                }
                if is_needed {
                    position += length.max(0).cast_unsigned().next_multiple_of(8);
                }
            }
            Step::Time { later_us } => {
                now += later_us;
                let due = |from: i64| from.checked_add(timeout_us).filter(|due| *due <= now);
                if let Some(at) = due(checkpoint_us) {
                    // A checkpoint when it was due; then nothing, and a look every 15 s.
                    let mut looks = at;
                    checkpoint_us = at;
                    if position > idle {
                        out.by_time += 1;
                        redo = position;
                        position += OWN;
                        idle = position;
                        looks = due(at).unwrap_or(i64::MAX);
                    }
                    boundary = number;
                    if looks <= now {
                        while looks <= now {
                            looks += 15_000_000;
                        }
                        checkpoint_us = looks - timeout_us;
                    }
                }
            }
            Step::Checkpoint { is_forced } => {
                forced = *is_forced || settings.schedule == Schedule::Source;
            }
            Step::Switch => position = position.next_multiple_of(USABLE),
        }
        let is_due = position / USABLE >= redo / USABLE + segments;
        if forced || is_due && !matches!(step, Step::Time { .. }) {
            if forced {
                out.forced += 1;
            } else {
                out.by_volume += 1;
            }
            redo = position;
            position += OWN;
            idle = position;
            boundary = number + 1;
            checkpoint_us = now;
        }
    }
    // Headers: one of 24 bytes a page, of a segment's first 40.
    let segment = position / USABLE;
    let used = position % USABLE;
    let mut end = segment << 20;
    if used > 0 {
        let in_pages = used + 16;
        let full = in_pages / 8168;
        let rest = in_pages % 8168;
        end += if rest == 0 { full * 8192 } else { full * 8192 + 24 + rest };
    }
    out.bytes = end - (1 << 20);
    out
}

fn together(settings: &[Settings], steps: &[Step]) -> Vec<WhatIfOutcome> {
    let mut whatif = WhatIf::new(GEOMETRY, OWN, settings);
    whatif.begin(BEGIN, Some(0));
    let mut now = 0;
    for step in steps {
        match step {
            Step::Record { bytes, references } => whatif.record(*bytes, references),
            Step::Time { later_us } => {
                now += later_us;
                whatif.time(now);
            }
            Step::Checkpoint { is_forced } => whatif.source_checkpoint(*is_forced),
            Step::Switch => whatif.switch(),
        }
    }
    whatif.finish()
}

/// What both tell.
fn counted(outcome: &WhatIfOutcome) -> [u64; 6] {
    [
        outcome.bytes,
        outcome.images,
        outcome.image_bytes,
        outcome.by_volume,
        outcome.by_time,
        outcome.forced,
    ]
}

prop_compose! {
    fn reference(rules: &'static [Rule])(
        fork in 0_u32..2,
        block in 0_u32..60,
        rule in prop::sample::select(rules),
        has_image: bool,
        data_bytes in 0_u16..100,
    ) -> Reference {
        let image = (has_image && rule != Rule::Init || rule == Rule::Always).then_some([100; 5]);
        // An image's header and a page's are 29 bytes.
        let grows_by = if rule == Rule::Init { 71 } else { 0 };
        Reference {
            block: BlockKey { fork, block },
            rule,
            image,
            data_bytes,
            grows_by,
            freeze_bytes: 0,
            pruned_bytes: 0,
        }
    }
}

/// So that an image's length is known of each fork.
fn first_images() -> Step {
    let first = |fork| Reference {
        block: BlockKey { fork, block: 100 },
        rule: Rule::Always,
        image: Some([100; 5]),
        data_bytes: 0,
        grows_by: 0,
        freeze_bytes: 0,
        pruned_bytes: 0,
    };
    Step::Record { bytes: 100, references: vec![first(0), first(1)] }
}

const OF_RECORDS: &[Rule] =
    &[Rule::Regular, Rule::Regular, Rule::WithHints, Rule::Init, Rule::Always];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (100_u32..60_000, prop::collection::vec(reference(OF_RECORDS), 0..3)).prop_map(
            |(bytes, mut references)| {
                references.dedup_by_key(|reference| reference.block);
                Step::Record { bytes, references }
            }
        ),
        5 => reference(&[Rule::Hint]).prop_map(|item| {
            // Its record is there for the image alone.
            let reference = Reference { image: Some([100; 5]), data_bytes: 0, ..item };
            Step::Record { bytes: 49, references: vec![reference] }
        }),
        6 => (0_i64..20_000_000).prop_map(|later_us| Step::Time { later_us }),
        1 => any::<bool>().prop_map(|is_forced| Step::Checkpoint { is_forced }),
        1 => Just(Step::Switch),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let kinds = [
        ImageCompression::AsStored,
        ImageCompression::OFF,
        ImageCompression::Set(Some(Compression::Pglz)),
        ImageCompression::Set(Some(Compression::Lz4)),
        ImageCompression::Set(Some(Compression::Zstd)),
    ];
    let rule = (2_u64..40, 1_i64..200, 0.0_f64..1.0).prop_map(|(megabytes, seconds, target)| {
        Schedule::Rule {
            max_wal_size: megabytes << 20,
            timeout_us: seconds * 1_000_000,
            completion_target: target,
        }
    });
    let schedule = prop_oneof![1 => Just(Schedule::Source), 9 => rule];
    (schedule, any::<bool>(), any::<bool>(), prop::sample::select(kinds.to_vec())).prop_map(
        |(schedule, hints, full_page_writes, compression)| Settings {
            schedule,
            hints,
            full_page_writes,
            compression,
        },
    )
}

/// The longest records that there are (1020 MB), under settings of which each needs other bytes.
#[test]
fn the_longest_records_are_counted_under_all_settings() {
    let kinds = [
        ImageCompression::AsStored,
        ImageCompression::OFF,
        ImageCompression::Set(Some(Compression::Pglz)),
        ImageCompression::Set(Some(Compression::Lz4)),
        ImageCompression::Set(Some(Compression::Zstd)),
    ];
    let both = [false, true];
    let settings = both.into_iter().flat_map(|hints| {
        both.into_iter().flat_map(move |full_page_writes| {
            kinds.map(|compression| Settings {
                schedule: Schedule::Source,
                hints,
                full_page_writes,
                compression,
            })
        })
    });
    let settings: Vec<Settings> = settings.collect();
    let pick = |block| Reference {
        block: BlockKey { fork: 0, block },
        rule: Rule::Regular,
        image: Some([100; 5]),
        data_bytes: 10,
        grows_by: 0,
        freeze_bytes: 0,
        pruned_bytes: 0,
    };
    let record = |bytes| Step::Record { bytes, references: vec![pick(1)] };
    let checkpoint = || Step::Checkpoint { is_forced: true };
    let mut steps = vec![first_images(), record(100)];
    for _ in 0..5 {
        steps.extend([checkpoint(), record(1020 << 20), record(1020 << 20)]);
    }
    for (item, outcome) in settings.iter().zip(together(&settings, &steps)) {
        assert_eq!(counted(&outcome), counted(&plain(item, &steps)), "{item:?}");
    }
}

proptest! {
    #[test]
    fn all_settings_at_once_are_each_by_itself_and_the_plain_replay(
        settings in prop::collection::vec(settings(), 1..65),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let steps = [vec![first_images()], steps].concat();
        let all = together(&settings, &steps);
        for (item, outcome) in settings.iter().zip(&all) {
            let single = together(&[*item], &steps);
            prop_assert_eq!(&single[0], outcome, "{:?}", item);
            prop_assert_eq!(counted(outcome), counted(&plain(item, &steps)), "{:?}", item);
        }
    }

    /// Boundaries that another setting has too are never less images; nor are images left out by
    /// anything that leaves images out.
    #[test]
    fn fewer_checkpoints_by_time_and_fewer_images_are_less_wal(
        steps in prop::collection::vec(step(), 0..300),
        seconds in 1_i64..50,
        times in 2_i64..5,
    ) {
        // Idle servers look again at times of their own.
        let steps: Vec<Step> = steps
            .into_iter()
            .filter_map(|step| match step {
                Step::Time { .. } => Some(Step::Time { later_us: 700_000 }),
                Step::Checkpoint { .. } => None,
                other => Some(other),
            })
            .flat_map(|step| [step, Step::Record { bytes: 100, references: Vec::new() }])
            .collect();
        let by_time = |timeout_us| Settings {
            schedule: Schedule::Rule { max_wal_size: 1 << 50, timeout_us, completion_target: 0.9 },
            hints: true,
            full_page_writes: true,
            compression: ImageCompression::OFF,
        };
        let often = by_time(seconds * 1_000_000);
        let seldom = by_time(times * seconds * 1_000_000);
        let without = Settings { full_page_writes: false, ..often };
        let all = together(&[often, seldom, without], &steps);
        prop_assert!(all[0].images >= all[1].images);
        prop_assert!(all[0].images >= all[2].images);
        prop_assert!(all[0].by_time >= all[1].by_time);
    }
}
