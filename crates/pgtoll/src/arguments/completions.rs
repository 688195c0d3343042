//! Arguments of `pgtoll completions`.

use clap::Args;
use clap_complete::Shell;

pub(super) const EXAMPLES: &str = "\
Places for them:
  pgtoll completions bash > ~/.local/share/bash-completion/completions/pgtoll
  pgtoll completions zsh > ~/.zfunc/_pgtoll     with ~/.zfunc in $fpath
  pgtoll completions fish > ~/.config/fish/completions/pgtoll.fish
  pgtoll completions elvish >> ~/.config/elvish/rc.elv
  pgtoll completions powershell >> $PROFILE";

#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    pub(crate) shell: Shell,
}
