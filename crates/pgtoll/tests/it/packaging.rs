//! What is packed beside the program: completions and manual pages.

use std::fs;

use pgtoll_cluster::SERVER_PACKAGES;

use crate::support::{Ran, Scratch, pgtoll, program, run};

fn completions(shell: &str) -> Ran {
    let ran = run(pgtoll().args(["completions", shell]));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{shell}");
    ran
}

#[test]
fn every_shell_gets_completions_and_nothing_hidden() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = completions(shell).stdout;
        for word in ["measure", "postgres", "work-dir", "install"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("__package") && !script.contains("__guard"), "{shell}");
    }
    let ran = run(pgtoll().args(["completions", "tcsh"]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("possible values: bash, elvish, fish, powershell, zsh"), "{ran:?}");
}

/// Bash itself completes a line with the script.
#[test]
fn bash_completes() {
    let scratch = Scratch::new();
    let script = scratch.path("pgtoll.bash");
    fs::write(&script, completions("bash").stdout).unwrap();
    let ran = run(program("bash").arg("-n").arg(&script));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""));
    let ask = "source \"$0\"; COMP_WORDS=(pgtoll postgres l); COMP_CWORD=2; \
               _pgtoll pgtoll l postgres; echo \"${COMPREPLY[*]}\"";
    let ran = run(program("bash").args(["-c", ask]).arg(&script));
    assert_eq!(ran.stdout, "list\n", "{ran:?}");
}

#[test]
fn the_manual_pages_are_dated_and_every_command_has_one() {
    let scratch = Scratch::new();
    let ran = run(pgtoll().arg("__package").arg(scratch.work()).env("SOURCE_DATE_EPOCH", "86400"));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for page in ["pgtoll", "pgtoll-measure", "pgtoll-report", "pgtoll-postgres-list"] {
        let page = scratch.work().join(format!("man/{page}.1"));
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains("1970-01-02"), "{text}");
    }
    let requires = fs::read_to_string(scratch.work().join("requires")).unwrap();
    assert_eq!(
        requires,
        format!("{}=={}\n", SERVER_PACKAGES[0].name(), SERVER_PACKAGES[0].version)
    );
}
