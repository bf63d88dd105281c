#!/bin/sh
# What the scripts of a site do with salt, salt-key, salt-run and salt-cp, whosever they are: the first
# ones of the PATH. Prints what such scripts read, without times and the order in which minions answer,
# so that two runs of it can be compared but for the ids of jobs.
#
# Needs a running master with the minions alfa, bravo and charlie, and /usr/bin/python3.
set -u

section() { echo "== $*"; }
# Sorted JSON, one value of several documents after the other.
json() { /usr/bin/python3 -c '
import json, sys
text, decoder = sys.stdin.read().strip(), json.JSONDecoder()
documents = {}
while text:
    document, end = decoder.raw_decode(text)
    documents.update(document) if isinstance(document, dict) else documents.update({"": document})
    text = text[end:].lstrip()
print(json.dumps(documents, indent=1, sort_keys=True))'; }

section "a health check: who answers, who does not"
salt --out=txt '*' test.ping 2>/dev/null | sort
salt-run --out=json manage.up 2>/dev/null | json
salt-run manage.down 2>/dev/null
echo "code $?"

section "keys, for a report and in a loop"
salt-key --list=accepted 2>/dev/null
salt-key --out=json -L 2>/dev/null | json
for id in $(salt-key --out=txt --list=acc 2>/dev/null | tr -d "[]',:" | tr ' ' '\n' | grep -v minions); do
    echo "id $id: $(salt --out=json "$id" grains.get id 2>/dev/null | json | tr -d '\n')"
done
salt-key --yes -a no-such-minion 2>/dev/null
echo "code $?"
salt-key --finger alfa 2>/dev/null | grep -c alfa

section "exit codes that a script decides by"
salt alfa cmd.run 'echo out; exit 3' 2>/dev/null
echo "code $?"
salt nobody test.ping 2>/dev/null
echo "code $?"
salt alfa no.such_function 2>/dev/null
echo "code $?"
salt alfa test.ping --no-such-option >/dev/null 2>&1
echo "code $?"
salt-run no.such_runner 2>/dev/null
echo "code $?"
salt-run test.arg one two=2 --out=json 2>/dev/null | json

section "targets"
salt --out=txt -L alfa,bravo test.ping 2>/dev/null | sort
salt --out=txt -E '(alfa|charlie)' test.ping 2>/dev/null | sort
salt --out=txt -C 'alfa or E@bra.*' test.ping 2>/dev/null | sort
salt --out=txt -G 'id:bravo' test.ping 2>/dev/null

section "several functions, static output, a batch, a summary"
salt --out=json --static '*' test.version 2>/dev/null | json
salt --out=json alfa test.ping,test.echo , word 2>/dev/null | json
salt -b 1 '*' test.echo word 2>/dev/null | grep -v '^ *jid:$\|^ *[0-9]\{20\}$\|Executing run' | sort
salt --summary alfa test.ping 2>/dev/null

section "a deployment: copy a file, apply a state, read its result"
echo "content of a site" >/tmp/site-file
salt-cp alfa /tmp/site-file /tmp/site-copied 2>/dev/null
salt-cp -C alfa /tmp/site-file /tmp/site-copied-too 2>/dev/null
cat /tmp/site-copied /tmp/site-copied-too
rm -f /tmp/site-copied /tmp/site-copied-too
salt --out=json alfa state.single file.managed name=/tmp/site-state contents=text 2>/dev/null |
    json | grep '"\(comment\|result\|name\)"'
salt alfa state.single test.fail_without_changes name=fails >/dev/null 2>&1
echo "code $?"
rm -f /tmp/site-state

section "a job that is looked up later"
jid=$(salt --async '*' test.echo later 2>/dev/null | grep -o '[0-9]\{20\}')
tries=0
while [ "$(salt-run --out=json jobs.lookup_jid "$jid" 2>/dev/null | grep -c '"later"')" != 3 ]; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || break
    sleep 0.5
done
salt-run --out=json jobs.lookup_jid "$jid" 2>/dev/null | json
salt-run jobs.exit_success "$jid" 2>/dev/null | sort
salt-run --out=json jobs.list_job "$jid" 2>/dev/null | json | grep '"\(Function\|Target\|Target-type\|Result\)"'

section "an orchestration of its own, and what does not exist"
salt-run --out=json salt.cmd test.echo word 2>/dev/null | json
salt-run -d manage.up 2>/dev/null | head -n 1
