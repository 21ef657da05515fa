//! Prints the dashboard of a synthetic primary as JSON, for screenshots of the page.

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(&standfast_live::synthetic::dashboard())?);
    Ok(())
}
