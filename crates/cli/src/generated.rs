//! Completions and manual pages, generated from the definition of the command line.

use crate::args;
use standfast_environment::InstanceError;
use std::path::Path;

pub fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut args::command(), "standfast", &mut std::io::stdout());
}

/// Writes one page per command into a directory, or prints the page of the whole program.
///
/// # Errors
/// When a page cannot be written.
pub fn manual(directory: Option<&Path>) -> Result<(), InstanceError> {
    let command = args::command().name("standfast");
    let Some(directory) = directory else {
        let page = clap_mangen::Man::new(command);
        return page.render(&mut std::io::stdout()).map_err(failed(Path::new("stdout")));
    };
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(failed(directory))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> InstanceError + '_ {
    move |error| InstanceError::Failed(format!("the manual cannot be written to {}: {error}", path.display()))
}
