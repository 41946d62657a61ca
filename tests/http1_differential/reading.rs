//! What a parser made of a connection, and where two of them part.

/// A whole connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The messages whose head was accepted.
    pub messages: Vec<Message>,
    /// Why the head after them was refused, if it was.
    pub refused: Option<String>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// As it was sent.
    pub method: String,
    /// As it was sent, but an empty path is `/`.
    pub target: String,
    pub body: Body,
}

/// Its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Whole(Vec<u8>),
    /// The connection ended in it.
    Unfinished,
    Refused(String),
}

/// Who takes what the other one refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// hyper accepts a head that Ringway refuses.
    Stricter,
    /// hyper reads a body on that Ringway refuses.
    StricterBody,
    /// Ringway accepts a head that hyper refuses.
    Wider,
    /// Ringway reads a body on that hyper refuses.
    WiderBody,
    /// The one sees a whole message where the other sees the end.
    Count,
    /// Both accept, and don't say the same: always a fault.
    Otherwise,
}

/// The first difference: which message, what kind, and the words of who refuses.
pub fn difference(ours: &Reading, theirs: &Reading) -> Option<(usize, Side, String)> {
    let longer = ours.messages.len().max(theirs.messages.len());
    for at in 0..longer {
        let found = match (ours.messages.get(at), theirs.messages.get(at)) {
            (Some(our), Some(their)) => of_message(our, their),
            (None, Some(_)) => Some((Side::Stricter, ours.refused.clone())),
            (Some(_), None) => Some((Side::Wider, theirs.refused.clone())),
            (None, None) => None,
        };
        if let Some((side, words)) = found {
            let side = if words.is_none() && side != Side::Otherwise { Side::Count } else { side };
            return Some((at, side, words.unwrap_or_default()));
        }
    }
    None
}

fn of_message(our: &Message, their: &Message) -> Option<(Side, Option<String>)> {
    if (&our.method, &our.target) != (&their.method, &their.target) {
        return Some((Side::Otherwise, None));
    }
    match (&our.body, &their.body) {
        // Nobody takes the message. hyper tells of a broken body only who asks for more of it.
        (Body::Refused(_), Body::Refused(_) | Body::Unfinished) => None,
        (Body::Refused(words), _) => Some((Side::StricterBody, Some(words.clone()))),
        (_, Body::Refused(words)) => Some((Side::WiderBody, Some(words.clone()))),
        (ours, theirs) if ours == theirs => None,
        _ => Some((Side::Otherwise, None)),
    }
}
