// A member of a consumer group: the HighLevelConsumer of kafka-node 3.0.1, which coordinates through ZooKeeper.
//
// Arguments: ZOOKEEPER_CONNECT GROUP CONSUMER_ID TOPIC SESSION_MS COMMIT_MS
// Standard output, one line each, fields separated by tabs, times in nanoseconds of the monotonic clock:
//   R time                                   its first rebalance is over
//   D time topic partition offset value      a message was delivered
//   G time text                              its tries to rebalance were used up
//   E time text                              another error
// SIGTERM makes it commit and leave the group.
'use strict';

const fs = require('fs');
const kafka = require('kafka-node');

const [connect, group, id, topic, sessionMs, commitMs] = process.argv.slice(2);

function say(kind, ...fields) {
  fs.writeSync(1, [kind, process.hrtime.bigint(), ...fields].join('\t') + '\n');
}

const client = new kafka.Client(connect, id, { sessionTimeout: Number(sessionMs) });
const consumer = new kafka.HighLevelConsumer(client, [{ topic }], {
  id, groupId: group, autoCommit: true, autoCommitIntervalMs: Number(commitMs)
});
consumer.once('rebalanced', () => say('R'));
consumer.on('message', (message) => say('D', message.topic, message.partition, message.offset, message.value));
consumer.on('error', (error) => {
  const kind = error.name === 'FailedToRebalanceConsumerError' ? 'G' : 'E';
  say(kind, String(error).replace(/[\t\r\n]/g, ' '));
});
process.on('SIGTERM', () => consumer.close(true, () => process.exit(0)));
