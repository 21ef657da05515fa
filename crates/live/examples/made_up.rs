//! Prints the dashboard of a made-up primary as JSON, for pictures of the page.

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(&standfast_live::made_up::dashboard())?);
    Ok(())
}
