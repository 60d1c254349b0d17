"""Rules of the tool `remote_agent`: how remote agents are found, asked, followed and told about."""

from tests.requirements.requirement import Requirement, rules

_REGISTERED = rules(
    "remote_agent contract, section 1",
    remote_register={
        "tool": "The plugin has its id and offers the tool by its exact name and label, optional.",
        "modes": "A load in a mode for looking around registers nothing and asks nobody.",
        "mode-first": "The mode is looked at first: a partial load logs only that it was put off.",
        "enabled": "Without `enabled: true` the tool is not offered.",
        "signatures": "A host may call with or without an id in front of the arguments.",
        "host-result": "A host gets the object as details and its JSON as content, updates too.",
        "never-raises": "Whatever is asked and whatever fails, the answer is an envelope.",
    },
    remote_log={
        "load": "Loading, being put off and being turned off are one line each: event, then JSON.",
        "errors": "A failed call is logged under its action, a streamed send under its own name.",
        "validation": "A request that does not pass the checks is logged as such.",
        "clients": "Finding, missing and building a client are logged.",
        "refresh": "A card that could not be refreshed is logged, whatever the reason.",
    },
    remote_describe={
        "targets": "The description names the aliases, the default and whether addresses may be.",
        "nothing": "Without targets the description says so, and what to do about it.",
    },
)

_CONFIGURED = (
    *rules(
        "remote_agent contract, section 2",
        remote_config={
            "defaults": "What is not configured has the published defaults.",
            "no-object": "A configuration that is no object is all defaults.",
            "wrong-value": "A wrong type, a blank text or a number below one is the default.",
            "transports": "Transports keep known names in order, once; none left is the default.",
            "parameters": "Of service parameters only texts are kept.",
            "output-modes": "Accepted output modes are texts that are not blank, once.",
            "target-texts": "A target's texts are trimmed; blank ones are left out or the default.",
            "target-lists": "A target's lists are trimmed, without blanks and duplicates.",
            "targets-fail": "Targets that cannot be read fail with the prefix and their place.",
            "duplicate-alias": "Two targets with one alias fail, and the alias is named.",
            "two-defaults": "Two default targets fail, and both are named.",
            "fresh": "No two readings share anything that can be changed.",
        },
        remote_schema={
            "closed": "The published schema takes no unknown members anywhere.",
            "counts": "The published schema wants whole numbers from one on.",
            "choices": "The published schema knows the three transports and what a target needs.",
            "defaults": "The published schema tells the defaults that are in force.",
            "one-copy": "The published schema decides what the gateway warns of when it starts.",
        },
        remote_policy={
            "same-url": "Addresses are the same when their normal forms are.",
            "as-written": "Without normalising, addresses are the same only letter by letter.",
            "unspoken-built": "A target with a transport we do not speak stops the tool.",
            "unspoken-continued": "A continuation with such a transport fails and names it.",
            "unspoken-ignored": "When the policy says so, such transports are passed over.",
        },
    ),
)

_REQUESTED = (
    *rules(
        "remote_agent contract, section 3.1",
        remote_request={
            "fields": "Every field has its type and bounds; a value outside is refused.",
            "unknown-field": "A field that does not exist is refused by name.",
            "allowed": "Every action takes its own fields and no other's.",
            "alias": "With targets configured, an alias must be one of theirs.",
            "url": "A target's address must be an http or https URI.",
            "untouched": "Nothing in a request is converted, filled in or removed by the checks.",
            "message-id": "A send without a message id gets a UUID.",
        },
    ),
    *rules(
        "remote_agent contract, section 3.2",
        remote_parts={
            "kinds": "Parts are text, file or data, and say which.",
            "file-source": "A file has an address or bytes; the address wins.",
            "closed": "A part with an unknown member is refused, old spellings too.",
            "push": "A push configuration has an address, perhaps id, token and schemes, no more.",
        },
    ),
    *rules(
        "remote_agent contract, section 3.3",
        remote_validate={
            "envelope": "A refusal has one label, its source, the tool and errors of five members.",
            "all": "Each stage tells all its errors.",
            "stages": "What goes together is checked only when the schema is content.",
            "action": "A refusal names the action that was asked for, or `unknown`.",
            "not-allowed": "A field of another action is told with its name and the action.",
            "alone": "Beside a continuation no field may name target, task or context.",
            "parts": "A send needs parts.",
            "blocking": "Following updates excludes saying anything about blocking.",
            "bare": "A send's continuation needs a task or a conversation.",
            "nobody": "A send needs somebody to send to, with a task or context id too.",
            "no-task": "Following by continuation needs its task.",
            "unnamed-task": "Following needs a handle or a task id.",
            "task-alone": "A task id needs a target, unless there is a default.",
            "no-alias": "An alias is refused in the second stage when none is configured.",
            "policy": "An address that is no target's is refused while the policy is closed.",
            "references": "A task id may come with references to other tasks.",
        },
    ),
    *rules(
        "remote_agent contract, section 3.4",
        remote_continuation={
            "shape": "A continuation needs its target whole and ids where it names things.",
            "closed": "A continuation has no unknown members at any level.",
            "unchanged": "What was told as continuation is accepted as it is.",
            "configured": "Usually a continuation may name only addresses of targets.",
            "allowed": "With free addresses or trust it may name others.",
            "vouched": "A live handle vouches for its target.",
            "agrees": "A live handle must agree in task, target and context.",
            "of-handle": "A live handle's context is used when the continuation has none.",
            "stale": "A handle that is gone is passed over, and the answer has a new one.",
            "without-handle": "Without a handle target and ids are enough.",
        },
    ),
    *rules(
        "remote_agent contract, section 3.5",
        remote_wire={
            "message": "Message, metadata and configuration go out in the peer's own spelling.",
            "files": "A file part carries its address or bytes, name, type and metadata.",
            "modes": "Output modes are the call's, else the policy's, and left out when empty.",
            "fresh-id": "Every send has a message id of its own unless one is given.",
            "not-blocking": "A required task is asked for without waiting, whatever was said.",
            "task": "Status, cancel and watch name the task; status may limit the history.",
            "parameters": "Service parameters, the call's over ours, go with every request.",
            "deadline": "One deadline covers card, request and stream, the call's or ours.",
            "abort": "A caller who goes away ends what was begun for him.",
        },
    ),
    *rules(
        "remote_agent contract, section 3.6",
        remote_resolve={
            "task": "A handle of another task is refused with both ids.",
            "target": "A handle of another target is refused with both targets.",
            "context": "A handle of another context is refused with both contexts.",
            "alias-first": "An alias wins over an address.",
            "default": "Without either the default target is meant.",
            "same-url": "A target's address means exactly that target.",
            "ambiguous": "An address that several targets share is refused with their aliases.",
            "unknown-alias": "An alias nobody has is refused with those there are.",
            "unknown-url": "What is no address of an agent is refused as unknown.",
            "disallowed": "An address against the policy is refused with all that was compared.",
        },
    ),
)

_TOLD = (
    *rules(
        "remote_agent contract, section 4.1",
        remote_envelope={
            "success": "A success tells operation, action, summary and raw, and no more.",
            "failure": "A failure tells operation, action and an error with its code.",
            "update": "An update is a success of one event with its phase.",
            "raw": "Raw is what the action gives: answer, task, or events with the last one.",
            "kinds": "Raw has one form with kinds and lower-case states in every version.",
        },
    ),
    *rules(
        "remote_agent contract, section 4.2",
        remote_summary={
            "members": "A summary has its known members; absent ones are left out, never null.",
            "kind": "One message is a message, anything of a task a task, more messages neither.",
            "message": "The text of a message is its texts, a blank line between them.",
            "artifacts-text": "The text of a task is its artifacts' in order.",
            "other-text": "Else status, then history, then the last message give the text.",
            "attention": "When a task wants attention or failed, its status comes first.",
            "not-ours": "Words of the user are never in the text.",
            "artifacts": "A summary has copies of the artifacts.",
            "pieces": "Pieces are joined to their artifact; others replace it; a task all of them.",
        },
    ),
    *rules(
        "remote_agent contract, section 4.3",
        remote_go__on={
            "known": "It is told when a task or a context is known, always with the target.",
            "open": "An open task can be sent to, asked for, cancelled and watched.",
            "ended": "An ended task can only be asked for.",
            "no-stream": "Nothing can be watched at a peer that does not stream.",
            "named": "A message that names a task goes on with it, without a status.",
            "kept": "A message in a known task keeps that task.",
            "conversation": "Any other message gives a conversation at most, and no handle.",
        },
    ),
    *rules(
        "remote_agent contract, section 4.4",
        remote_example={
            "direct": "A direct answer reads as in the example.",
            "paused": "A paused task reads as in the example.",
        },
    ),
    *rules(
        "remote_agent contract, section 4.5",
        remote_list={
            "together": "The cards of all targets are fetched at the same time.",
            "entry": "An entry has the members of the contract, in the order of the targets.",
            "raw": "A raw entry has target, configuration and card in their own spelling.",
            "clean": "What cards say is trimmed, without blanks, duplicates and wrong types.",
            "copies": "Who changes what was listed changes nothing else.",
            "failed": "A refresh that fails keeps the card and tells the error and the time.",
            "shared": "Several who want one card share one request.",
            "recorded": "The card with which a client was built is the one that is listed.",
            "age": "A list fetches cards that are missing, failed, or over five minutes old.",
            "isolated": "A peer that cannot be reached breaks no list.",
        },
        remote_client={
            "kept": "A client is made once for address, card path and transports in order.",
            "order": "Transports are taken by our preference, then the card's, in any case.",
            "none": "Without a common transport the call fails and names those there are.",
            "no-second": "A failing request is not tried elsewhere, unless the policy says so.",
        },
    ),
)

_FOLLOWED = (
    *rules(
        "remote_agent contract, section 5",
        remote_stream={
            "updates": "Every event is one update with all that is known by then.",
            "empty": "A stream without events is an error.",
            "broken": "A stream that breaks tells how many events came and what they say.",
            "closed": "A stream that ends early with events is no error.",
        },
        remote_required={
            "message": "A message is an error with its ids where a task is required.",
            "first": "The task is the first event, and then it is followed.",
            "ended": "A task that has ended already is followed no further.",
            "once": "A subscription's first task that says nothing new is left out.",
            "not-lost": "A task that cannot be followed is named with its handle and what to do.",
        },
        remote_watch={
            "no-stream": "A peer whose card says that it does not stream is not asked to.",
            "remembered": "Without a card, what the handle remembers of streaming counts.",
            "unsupported": "A peer that refuses the operation is told about in the same way.",
            "empty": "A watch without events is an error.",
        },
    ),
    *rules(
        "remote_agent contract, section 6",
        remote_handle={
            "name": "A handle is its prefix and a UUID.",
            "life": "A handle lives its time from its last answer, and a look-up adds nothing.",
            "context": "An answer without a context keeps the one that was known.",
            "once": "An expired handle is told as expired once, then as unknown.",
            "pruned": "Expired handles go when any handle is made or looked up.",
            "most": "Of too many handles the one that was used longest ago goes.",
            "unknown": "An unknown handle is told with how to go on and what restarts do.",
            "expired": "An expired handle is told with all that is needed without it.",
        },
    ),
)

_FAILED = (
    *rules(
        "remote_agent contract, section 7",
        remote_error={
            "peer": "Errors of peers tell name, cause, code and status as far as they are known.",
            "rpc-data": "Data of an error is told as it is when simple, else in outline.",
            "time-out": "A deadline is told as such, with both settings that would change it.",
            "aborted": "A host's abort reads like a deadline.",
            "internal": "Anything else is an internal error, and no stack is shown.",
        },
    ),
    *rules(
        "remote_agent contract, section 7.1",
        remote_diagnose={
            "every": "Every failed send to a known target tells what was asked and offered.",
            "sends-only": "Other actions tell nothing of the kind.",
            "inputs": "Kinds of parts, types, names and addresses say what was asked.",
            "extensions": "The sixteen known extensions have their types.",
            "unknown": "A file of no known type is told by its place and never as unsupported.",
            "offered": "Offered is what card and skills say, nothing without a card.",
            "clean": "Types are trimmed, in lower case, once, as they were first seen.",
            "sent-anyway": "What the card does not offer is sent all the same.",
        },
    ),
    *rules(
        "remote_agent contract, section 8",
        remote_extension={
            "environment": "Values of the environment are put in when the call is made.",
            "not-set": "A variable that is not set fails the call, and nothing is sent.",
            "auth": "A target gets its own credentials, in its own header, and no other's.",
            "secrets": "Secrets are in no result, log or error, even when a peer repeats them.",
            "chain": "The chain of callers goes along, and calls that go round are refused.",
            "versions": "Peers of 1.0 and of 0.3 are spoken to as their cards say.",
        },
    ),
)

_BEYOND = rules(
    "remote_agent, beyond the contract",
    remote_durable={
        "handle": "With a durable store a handle is good after a restart, and errors say so.",
        "watch": "A watch goes on after a restart of ours.",
        "at-once": "A task is written down as soon as the peer has named it.",
        "awaited": "An answer with the handle of a task that goes on is given when it is stored.",
        "ended": "The handle of a task that has ended is stored a moment after its answer.",
        "resume": "A paused task is answered after a restart, through the tool itself.",
    },
    remote_large={
        "cut": "A large result is cut, says where the rest is, and nothing of it is lost.",
        "owner": "Only who asked reads the rest.",
    },
    remote_health={
        "breaker": "A peer that fails again and again is left alone; the error says until when.",
        "repeat": "Only what is safe to repeat is repeated.",
    },
    remote_tool={
        "http": "The tool is called over HTTP, with updates as events when they are asked for.",
        "mcp": "The tool is called over MCP, updates are progress, cancelling passes through.",
        "stdio": "The tool is called over MCP on standard input and output.",
        "tokens": "Tool tokens are kept as hashes and can be revoked at once.",
        "session": "Only a host says for which agent and session a call is.",
        "command": "The command line tells the same envelopes.",
        "python": "Scripts have the same in Python.",
        "skills": "What the skill files show is true.",
        "rounds": "An agent of OpenClaw calls a remote agent and goes on with it after a restart.",
    },
    remote_trouble={
        "down": "A peer that is down is told apart.",
        "slow": "A silent peer and an endless stream end with the deadline.",
        "not-a2a": "Pages, pictures, broken JSON and anything else are told with a hint.",
        "half": "Half an event is left out.",
        "redirect": "Redirects are not followed.",
        "large": "Answers are read up to a limit.",
        "elsewhere": "A card that sends us to other hosts is not followed.",
        "version": "A card that lies about its version is told to.",
        "tls": "A certificate that nobody vouches for is refused.",
        "challenge": "A challenge is shown with what to do.",
    },
)

REMOTE_AGENT: tuple[Requirement, ...] = (
    *_REGISTERED,
    *_CONFIGURED,
    *_REQUESTED,
    *_TOLD,
    *_FOLLOWED,
    *_FAILED,
    *_BEYOND,
)
"""The rules of the tool, in the contract's order."""
