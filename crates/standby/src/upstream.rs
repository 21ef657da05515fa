//! Where the redo of a standby comes from.

use standfast_environment::state::control::{Control, Upstream};
use standfast_transport::{Refusal, RefuseCode, SenderHello};

/// Returns what the sender that introduces itself with `hello` is to the instance of `control`, or why it may not write
/// to the log: redo must not come back to an instance that it has passed.
///
/// # Errors
/// When the redo would go in a circle.
pub fn upstream(control: &Control, hello: &SenderHello) -> Result<Upstream, Refusal> {
    if let Some(at) = hello.via.iter().position(|hop| hop.instance == control.instance) {
        let way: Vec<&str> = hello.via[at..].iter().map(|hop| hop.name.as_str()).collect();
        let text = format!(
            "the redo of `{name}` comes from here ({way} > {name}) and is not taken back; remove this instance from the \
             destinations of `{name}`",
            way = way.join(" > "),
            name = hello.source.name
        );
        return Err(Refusal::new(RefuseCode::Loop, text));
    }
    Ok(Upstream {
        instance: hello.source.instance,
        name: hello.source.name.clone(),
        role: hello.source.role,
        via: hello.via.clone(),
        delay_ms: hello.delay_ms,
        logs: hello.logs,
    })
}
