use super::*;

fn document() -> Document {
    let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
    Document {
        command: "pgtoll test",
        question: "What is it?",
        subject: "A server.".to_owned(),
        answer: vec!["It is <b>this</b>.".to_owned()],
        findings: vec!["one".to_owned()],
        sections: vec![
            Section::detail(
                "Rows",
                vec![
                    Block::Table(Table::new(
                        &["name", "|"],
                        vec![row(["a", "1"]), row(["b\n", "2"])],
                    )),
                    Block::List(vec!["item".to_owned()]),
                ],
            ),
            Section::evidence(
                "Evidence",
                vec![
                    Block::Code(["```", "x = 1"].map(str::to_owned).to_vec()),
                    Block::Folded { summary: "more".to_owned(), code: vec!["y".to_owned()] },
                ],
            ),
        ],
        notes: vec!["a note".to_owned()],
        again: vec!["pgtoll".to_owned(), "test".to_owned()],
    }
}

#[test]
fn a_terminal_shows_evidence_only_in_full() {
    let short = document_text(&document(), false);
    assert!(
        short.starts_with("It is <b>this</b>.\nfinding: one\n\nA server.\n\nRows\n"),
        "{short}"
    );
    assert!(short.contains(" b\\n   2") && !short.contains("x = 1"), "{short}");
    assert!(short.ends_with("\nnote: a note\n\nMore with --full: Evidence\n"), "{short}");
    let full = document_text(&document(), true);
    assert!(full.contains("\nEvidence\n```\nx = 1\n"), "{full}");
}

#[test]
fn markdown_keeps_text_text() {
    insta::assert_snapshot!(document_markdown(&document()));
}

#[test]
fn a_page_keeps_text_text() {
    let page = document_html(&document(), "{}", "{}", "test.json");
    assert!(page.contains("It is &lt;b&gt;this&lt;/b&gt;."), "{page}");
    assert!(page.contains("<h2 id=\"part-0-heading\">Rows</h2>"), "{page}");
    assert!(page.contains("<summary>more</summary>") && page.contains("test.json"), "{page}");
}
