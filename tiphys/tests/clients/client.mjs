// The `@kubernetes/client-node` package: create, list, watch, patch, selectors, paging.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const namespace = 'javascript';
const named = (name, labels = {}, data = {}) => ({ metadata: { name, labels }, data });
const names = (list) => list.items.map((item) => item.metadata.name);

await core.createNamespace({ body: { metadata: { name: namespace } } });
for (let n = 0; n < 7; n++) {
  const body = named(`map-${n}`, { parity: n % 2 ? 'odd' : 'even' }, { n: `${n}` });
  const made = await core.createNamespacedConfigMap({ namespace, body });
  assert.ok(made.metadata.uid);
}
await assert.rejects(core.createNamespacedConfigMap({ namespace, body: named('map-1') }), (error) => error.code === 409);

const even = await core.listNamespacedConfigMap({ namespace, labelSelector: 'parity=even' });
assert.deepEqual(names(even), ['map-0', 'map-2', 'map-4', 'map-6']);
const one = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=map-3' });
assert.deepEqual(names(one), ['map-3']);

const seen = [];
let token;
do {
  const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'parity', limit: 3, _continue: token });
  seen.push(...names(page));
  token = page.metadata._continue;
} while (token);
assert.deepEqual(seen, [0, 1, 2, 3, 4, 5, 6].map((n) => `map-${n}`));

const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
await core.patchNamespacedConfigMap({ namespace, name: 'map-1', body: { data: { patched: 'yes' } } }, merge);
const patched = await core.readNamespacedConfigMap({ namespace, name: 'map-1' });
assert.deepEqual(patched.data, { n: '1', patched: 'yes' });

const list = await core.listNamespacedConfigMap({ namespace });
const events = [];
await new Promise((resolve, reject) => {
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const options = { resourceVersion: list.metadata.resourceVersion, timeoutSeconds: 20 };
  const onEvent = (type, object) => {
    events.push([type, object.metadata.name]);
    if (type === 'DELETED') resolve();
  };
  new k8s.Watch(config).watch(path, options, onEvent, (error) => (error ? reject(error) : resolve())).catch(reject);
  setTimeout(async () => {
    await core.createNamespacedConfigMap({ namespace, body: named('watched') });
    await core.deleteNamespacedConfigMap({ namespace, name: 'watched' });
  }, 300);
});
assert.deepEqual(events, [['ADDED', 'watched'], ['DELETED', 'watched']]);

const read = await objects.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'map-2', namespace } });
assert.equal(read.data.n, '2');
await core.deleteCollectionNamespacedConfigMap({ namespace });
assert.equal((await core.listNamespacedConfigMap({ namespace })).items.length, 0);
console.log('all done');
process.exit(0);
