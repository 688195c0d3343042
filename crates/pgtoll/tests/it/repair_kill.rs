//! `pgtoll repair` that is killed: a page is the old one or the new one, and the same command goes on.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use pgtoll_cluster::StopMode;
use pgtoll_format::SplitMix64;

use crate::repair::{
    backup, check_checksums, cluster, content, open, paths, read_page, repair, shown,
};
use crate::repair_standby::{dsn, pair};
use crate::support::{Scratch, is_long, pgtoll, pid_of, run, server};
use crate::verify::{PAGE, execute, overwrite};

/// `pgtoll repair --yes`, stopped at a point.
struct Stopped(Child);

impl Stopped {
    fn at(point: &str, data: &Path, from: [&str; 2], undo: &Path) -> Self {
        let mut command = pgtoll();
        command.arg("repair").arg(data).args(from).args(["--yes", "--no-redo"]);
        command.arg("--undo-file").arg(undo).env("PGTOLL_TEST_PAUSE_AT", point);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let status = waitid(Id::Pid(Pid::from_raw(pid_of(&child))), flags).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{point}: {status:?}");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn killed_at_any_step_a_page_is_the_old_one_or_the_new_one() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let cluster = cluster(&mut guard, &server, "killed");
    let backup = backup(&mut guard, &cluster);
    let [table, ..] = paths(&cluster);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let data = cluster.data();
    let path = data.join(&table);
    let from = ["--from-backup", shown(&backup)];
    let blocks = [3, 4, 5];
    let right = blocks.map(|block| read_page(&path, block));
    for block in blocks {
        overwrite(&open(&path), block, |page| page[..64].fill(0xA5));
    }
    let wrong = blocks.map(|block| read_page(&path, block));
    let points = [
        ("repair-held", 0),
        ("repair-checked", 0),
        ("repair-written-0", 1),
        ("repair-written-2", 3),
    ];
    for (point, written) in points {
        let undo = scratch.path(&format!("{point}.undo"));
        Stopped::at(point, &data, from, &undo).kill();
        for (number, block) in blocks.into_iter().enumerate() {
            let expected = if number < written { &right[number] } else { &wrong[number] };
            assert!(&read_page(&path, block) == expected, "{point}, block {block}");
        }
        // What was written is taken back with the undo file, which was there before.
        let output = repair(&scratch, &data, &["--undo", shown(&undo)], 0);
        assert_eq!(output["outcome"], "undone");
        assert!(blocks.map(|block| read_page(&path, block)) == wrong, "{point}");
    }
    let undo = scratch.path("mixed.undo");
    Stopped::at("repair-written-1", &data, from, &undo).kill();
    // Power may leave sectors of both.
    let mixed = |page: &mut [u8]| page[..4096].copy_from_slice(&right[2][..4096]);
    overwrite(&open(&path), 5, mixed);
    overwrite(&open(&path), 5, |page| page[4096..].fill(1));
    let refused = run(pgtoll().arg("repair").arg(&data).arg("--undo").arg(&undo));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("was written since"), "{refused:?}");
    // The same command goes on: two pages are sound, the third is refused still.
    let printed = repair(&scratch, &data, &["--from-backup", shown(&backup), "--yes"], 0);
    assert_eq!(printed["blocks"].as_array().unwrap().len(), 1, "{printed:#}");
    assert!(blocks.map(|block| read_page(&path, block)) == right);
    // With pages that are old and new by sectors the undo file works.
    overwrite(&open(&path), 4, |page| page[..512].copy_from_slice(&wrong[1][..512]));
    let message = repair(&scratch, &data, &["--undo", shown(&undo)], 0);
    assert_eq!(message["outcome"], "undone");
    assert!(blocks.map(|block| read_page(&path, block)) == wrong);
    let output = repair(&scratch, &data, &["--from-backup", shown(&backup), "--yes"], 0);
    assert_eq!(output["remaining"], 0);
    // Once a server has written there is no way back.
    cluster.start(&mut guard).unwrap();
    execute(&cluster, &["UPDATE t SET b = 'new' WHERE a < 2000", "CHECKPOINT"]);
    let running = run(pgtoll().arg("repair").arg(&data).arg("--undo").arg(&undo));
    assert_eq!(running.status, Some(2), "{running:?}");
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let now = fs::read(&path).unwrap();
    let refused = run(pgtoll().arg("repair").arg(&data).arg("--undo").arg(&undo));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(fs::read(&path).unwrap() == now);
}

/// Kills repairs of many pages at so many moments, each somewhere else, until all are written.
struct Moments<'a> {
    scratch: &'a Scratch,
    data: &'a Path,
    path: &'a Path,
    from: [&'a str; 2],
}

impl Moments<'_> {
    fn check(&self, count: u64, right: &[Vec<u8>], wrong: &[Vec<u8>]) {
        let mut random = SplitMix64(count);
        let mut written_before = 0;
        for moment in 0..count {
            let left = right.len() - written_before;
            let written = usize::try_from(random.below(3)).unwrap().min(left - 1);
            let point = match written.checked_sub(1) {
                None => "repair-checked".to_owned(),
                Some(last) => format!("repair-written-{last}"),
            };
            let undo = self.scratch.path(&format!("{}-{moment}.undo", self.from[0]));
            Stopped::at(&point, self.data, self.from, &undo).kill();
            written_before += written;
            for (block, (right, wrong)) in right.iter().zip(wrong).enumerate() {
                let expected = if block < written_before { right } else { wrong };
                let now = read_page(self.path, block as u64);
                // Hints of a standby's page may be others: the rest is what its checksum fits.
                let is_new = |now: &[u8]| now[..8] == right[..8] && now != wrong.as_slice();
                let is_it = &now == expected || block < written_before && is_new(&now);
                assert!(is_it, "moment {moment} ({point}), block {block}");
            }
        }
        let output = repair(self.scratch, self.data, &[&self.from[..], &["--yes"]].concat(), 0);
        let blocks = output["blocks"].as_array().unwrap().len();
        assert_eq!(blocks, right.len() - written_before, "the rest");
    }
}

#[test]
fn killed_at_any_moment_the_same_command_goes_on() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let server = server();
    let (cluster, standby) = pair(&mut guard, &server, "moments");
    let backup = backup(&mut guard, &cluster);
    let [table, ..] = paths(&cluster);
    let expected = content(&cluster);
    let data = cluster.data();
    let path = data.join(&table);
    let damage = || {
        let blocks = fs::metadata(&path).unwrap().len() / PAGE;
        let pages = || (0..blocks).map(|block| read_page(&path, block)).collect::<Vec<_>>();
        let right = pages();
        for block in 0..blocks {
            overwrite(&open(&path), block, |page| page[4096..].fill(0x5A));
        }
        (right, pages())
    };
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    let stopped = ["--from-backup", shown(&backup)];
    let moments = Moments { scratch: &scratch, data: &data, path: &path, from: stopped };
    let (right, wrong) = damage();
    let count = if is_long() { 25 } else { 10 };
    moments.check(count, &right, &wrong);
    // The same of a server that runs, and has none of them in memory yet.
    cluster.start(&mut guard).unwrap();
    let (right, wrong) = damage();
    let from = dsn(&standby);
    Moments { from: ["--from-standby", &from], ..moments }.check(count, &right, &wrong);
    assert_eq!(content(&cluster), expected);
    cluster.stop(&mut guard, StopMode::Fast).unwrap();
    standby.stop(&mut guard, StopMode::Fast).unwrap();
    check_checksums(&mut guard, &server, &cluster);
}
