"""Rules about objectives: the extension, its methods and messages, and how they are carried out."""

from tests.requirements.requirement import rules

_BAD_DAYS = "objectives, bad input and bad days"

OBJECTIVES = (
    *rules(
        "objectives contract, section 1",
        opt_activation={
            "names": "The extension is activated by its URI, or by the alias.",
            "header": (
                "A2A-Extensions or X-A2A-Extensions, in any case of letters, lists URIs with "
                "commas; blanks and empty items do not count."
            ),
            "echo": "The answer names what was activated in the same header.",
            "off-messages": "Without activation the metadata of a message makes nothing.",
            "off-methods": "Without activation the methods give -32601.",
            "setting": "With opt.requireActivation false the methods need no header.",
        },
        opt_card={
            "entry": "The card has the URI, required false, and the three params.",
            "truth": "Limits and persistence on the card are those of the settings and the store.",
        },
    ),
    *rules(
        "objectives contract, section 2",
        opt_object={
            "objective": "An objective has its members; the optional ones only when there.",
            "plan": "A plan has its members, dependencies and metadata also when empty.",
            "task": "A plan task has its members and is pending until it is linked.",
            "order": "Plans and tasks are shown in the order in which they came.",
            "moments": "Moments are ISO 8601 in UTC with milliseconds.",
            "ids": "Ids are made by the gateway and begin with obj-, plan- and task-.",
            "objective-changes": "Callers move an objective along its table only.",
            "plan-changes": "Callers move a plan along its table only.",
            "same-status": "The status that something has may always be asked for.",
        },
    ),
    *rules(
        "objectives contract, section 3",
        opt_key={
            "task": "The task of a step carries objectiveId, planId and taskIndex.",
            "dependencies": "It carries the ids of the steps before it.",
            "no-dependencies": "Without any the key is left out.",
            "context": "The context of every task of an objective is its id.",
            "both": "A task with an objective and no plan is no step.",
            "hints": "Only preferObjective true makes an objective; a bad hint is none.",
            "answer": "taskId is the id of a plan task or of an A2A task.",
        },
    ),
    *rules(
        "objectives contract, section 4",
        opt_method={
            "create": "objectives/create gives a submitted objective with no plans.",
            "get": "objectives/get leaves plans or tasks out when that is asked.",
            "list": "objectives/list gives the newest first, ten unless asked otherwise.",
            "list-filter": "A status chooses, and totalSize counts what it chose.",
            "list-pages": "Pages have 1 to 100 objectives; only the last has no token.",
            "update": "objectives/update changes name, description, status and metadata.",
            "replan": "objectives/replan blocks working plans and leads to planning.",
            "replan-way": "A working objective that is replanned passes through blocked.",
            "replan-over": "From completed and canceled replan gives -32051.",
            "plan-create": "plans/create gives a pending plan, with its tasks.",
            "plan-waits": "A plan whose dependencies are not done is created blocked.",
            "plan-begins": "A submitted objective that gets a plan is planning.",
            "plan-get": "plans/get leaves tasks out when that is asked.",
            "plan-update": "plans/update changes name, description, status and metadata.",
            "task-update": "plans/update changes the listed tasks and no others.",
            "task-update-whole": "It changes all of them or none; each must be the plan's.",
            "add-tasks": "plans/addTasks appends, and indexes continue.",
            "delete": "objectives/delete takes plans and links along.",
            "delete-running": "With running tasks it is refused, unless they are canceled too.",
            "entries": "task-<i> is the i-th entry of the request; other values are ids.",
            "entries-range": "An index out of range is refused.",
            "fixed": "Nothing but the listed members can be updated; others are refused.",
            "younger": "updatedAt is later after every change.",
        },
        opt_error={
            "params": "-32602 names the parameter and the method.",
            "not-found": "-32050 names the kind and the id.",
            "status": "-32051 names both states.",
            "limit": "-32052 for one plan or one task too many.",
            "dependency": "-32053 for circles and unknown dependencies.",
            "method": "-32601 for a method that does not exist.",
            "internal": "-32603 for faults of ours, without our insides.",
            "legacy": "Not found and bad state carry the numbers of the older draft.",
            "id-echo": "The id of a request comes back, string or number.",
        },
    ),
    *rules(
        "objectives contract, section 5",
        opt_message={
            "bare": "The contract's request works without messageId and without kind.",
            "known-objective": "A message runs inside the objective that it names.",
            "new-objective": "An objective that is not there, or has no id, is made.",
            "own-id": "A given id is kept when it is free and well formed.",
            "plan": "The same holds for a plan under its objective.",
            "prefer": (
                "preferObjective makes an objective with the suggested name, or the first 80 "
                "characters of the text."
            ),
            "linked": "The task of such a message is linked to its plan task.",
            "answer": "A message in the objective's context answers the task it names.",
        },
    ),
    *rules(
        "ours: messages of objectives",
        opt_message={
            "plan-alone": "A known plan is enough to name its objective; an unknown is refused.",
            "partial-plan": "A new plan has the tasks and dependencies that the message gives.",
            "refused-whole": "A message that is refused for what it says leaves nothing behind.",
            "again": "The same message again finds the place that it had.",
        },
    ),
    *rules(
        "objectives contract, section 6",
        opt_rollup={
            "mirror": "A plan task has the state of its A2A task.",
            "plan-works": "A pending plan with a submitted or working task is working.",
            "plan-blocked": "A plan is blocked while a task waits and none works.",
            "plan-resumes": "It is working again when that task resumes.",
            "plan-completed": "A plan is completed when all its tasks are.",
            "plan-failed": "A bad end of a task with no retry left fails its plan.",
            "retry": "With a retry left the plan goes on.",
            "objective-works": "An objective with a working plan is working.",
            "objective-completed": "It is completed with all plans that are not skipped.",
            "objective-blocked": "It is blocked when every open plan is.",
            "objective-failed": "It is failed when a plan failed and nothing is open.",
            "way": "Automatic changes keep to the tables, through working when needed.",
            "plan-waits": "A plan waits blocked for its dependencies and cannot begin.",
            "plan-free": "It is pending by itself when they are completed or skipped.",
            "ready": "A task is ready when its dependencies are completed.",
            "parallel": "Ready tasks of a plan run at once.",
            "cancel-tasks": "Cancelling an objective cancels its open tasks.",
            "cancel-plans": "It skips pending and blocked plans and fails working ones.",
        },
        opt_progress={
            "counts": "objectives/get tells done, total and percent.",
            "current": "It tells what is at work and what has waited longest.",
        },
    ),
    *rules(
        "objectives contract, section 7",
        opt_storage={
            "session": "Messages about an objective share the agent's session for it.",
            "step-session": "A step that is run has a session of its own.",
            "inputs": "A step gets the results of what it depends on.",
            "directory": "Files lie in opt.directory, by default objectives in the data folder.",
            "file-name": "An objective has one file, named by its id with underscores.",
            "line": "A line is one JSON object with v, seq, ts, op and data.",
            "operations": "The eight operations are written, and no others.",
            "replay": "What is loaded is what was there before.",
            "cut-off": "A broken last line is left out and told.",
            "broken-line": "A broken line elsewhere is skipped with a warning.",
            "gaps": "Gaps in the numbers do no harm.",
            "flushed": "What was answered is in the file before the answer.",
            "archive": "A completed objective ends with an archive line.",
            "archived": "An archived objective is readable and not loaded at start.",
            "memory": "The memory store does the same, and keeps nothing.",
            "delete": "Deleting an objective deletes all of it.",
        },
    ),
    *rules(
        "objectives: endpoints",
        opt_rest={
            "routes": "Every method has an address over HTTP+JSON.",
            "errors": "Refusals have their HTTP statuses there.",
        },
        opt_follow={
            "changes": "objectives/subscribe shows the objective, then every change.",
            "cursor": "With Last-Event-ID only what was missed follows.",
        },
        opt_move={
            "stores": "An exported objective is the same in any other store.",
            "under-way": "Steps that were under way elsewhere begin again.",
        },
        opt_tool={
            "five": "Five tools let an agent plan, and have it carried out.",
        },
        opt_command={
            "list": "The commands list and show objectives, with what is waited for.",
            "watch": "An objective is watched to its end.",
            "act": "It is run, paused and given up by command.",
        },
    ),
    *rules(
        "objectives: execution",
        opt_run={
            "begins": "What is run begins its ready steps by itself, in order.",
            "limit": "No more steps of an objective run at once than allowed.",
            "agent": "A step is done by the agent that its metadata names.",
            "target": "A remote agent that knows the extension gets its keys, others do not.",
            "retry": "A step that fails is tried again so often, after a pause.",
            "question": "A question pauses only what depends on it.",
            "pause": "What is paused begins nothing until it is resumed, over restarts too.",
            "cancel": "Cancelling really ends what runs, here and far away.",
            "restart": "A restart goes on where it was and repeats no finished step.",
        },
        opt_planner={
            "plans": "An agent that plans turns an objective into plans that are then run.",
            "bad-answer": "A bad answer is asked for again once; then it is blocked with why.",
        },
        opt_plain={
            "clients": "A client without the extension sees plain, correct tasks.",
        },
    ),
    *rules(
        _BAD_DAYS,
        opt_bad={
            "unknown": "Every method says which id it does not know.",
            "circles": "Circles through tasks, plans and both are refused.",
            "elsewhere": "What is in another objective cannot be depended on.",
            "two-at-once": "Of two changes at once one wins, and the other is told.",
            "fails-always": "An agent that fails each time is asked so often and no more.",
            "kill": "A kill between any two steps loses nothing and repeats nothing finished.",
            "walls": "What others own looks like what is not there.",
            "hostile": "No input makes anything but a clear answer.",
        },
    ),
)
