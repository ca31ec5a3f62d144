import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.StreamWriteFeature;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams: joins events with a GlobalKTable by the key of the record, and runs ONNX Runtime once per event.
 *
 * <p>Arguments: bootstrap servers, application id, input topic, table topic, output topic, model, state folder, number of event
 * fields, number of joined fields. The rows are in memory, not in RocksDB, which would cost more per look-up. Commits are 100 ms
 * apart, exactly once.
 */
public final class StreamsPeer {
  private static final JsonFactory JSON = JsonFactory.builder()
      .enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER)
      .enable(StreamWriteFeature.USE_FAST_DOUBLE_WRITER)
      .build();

  /** Parses an event and its row, runs the model, and writes the result. The buffers and tensors are reused. */
  private static final class Scorer {
    private final Map<String, Integer> eventFields = new HashMap<>();
    private final Map<String, Integer> rowFields = new HashMap<>();
    private final OrtSession session;
    private final FloatBuffer score;
    private final FloatBuffer features;
    private final Map<String, OnnxTensor> inputs;
    private final Map<String, OnnxTensor> outputs;
    private final ByteArrayOutputStream text = new ByteArrayOutputStream(64);
    private long id;

    Scorer(String model, int events, int joined) {
      for (int number = 0; number < events; number++) {
        eventFields.put("f" + number, number);
      }
      for (int number = 0; number < joined; number++) {
        rowFields.put("f" + number, events + number);
      }
      features = direct(events + joined);
      score = direct(1);
      try {
        OrtEnvironment environment = OrtEnvironment.getEnvironment();
        OrtSession.SessionOptions options = new OrtSession.SessionOptions();
        options.setIntraOpNumThreads(1);
        options.setInterOpNumThreads(1);
        options.addConfigEntry("session.intra_op.allow_spinning", "0");
        session = environment.createSession(model, options);
        inputs = Map.of("x", OnnxTensor.createTensor(environment, features, new long[] {1, events + joined}));
        outputs = Map.of("y", OnnxTensor.createTensor(environment, score, new long[] {1, 1}));
      } catch (OrtException exception) {
        throw new IllegalStateException(exception);
      }
    }

    private static FloatBuffer direct(int numbers) {
      return ByteBuffer.allocateDirect(4 * numbers).order(ByteOrder.nativeOrder()).asFloatBuffer();
    }

    byte[] score(byte[] event, byte[] row) {
      try {
        parse(event, eventFields);
        parse(row, rowFields);
        session.run(inputs, outputs).close();
        text.reset();
        try (JsonGenerator generator = JSON.createGenerator(text)) {
          generator.writeStartObject();
          generator.writeNumberField("id", id);
          generator.writeNumberField("score", score.get(0));
          generator.writeEndObject();
        }
        return text.toByteArray();
      } catch (IOException exception) {
        throw new UncheckedIOException(exception);
      } catch (OrtException exception) {
        throw new IllegalStateException(exception);
      }
    }

    private void parse(byte[] value, Map<String, Integer> fields) throws IOException {
      try (JsonParser parser = JSON.createParser(value)) {
        parser.nextToken();
        for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
          parser.nextToken();
          Integer place = fields.get(name);
          if (place != null) {
            features.put(place, parser.getFloatValue());
          } else if (name.equals("id")) {
            id = parser.getLongValue();
          } else {
            parser.skipChildren();
          }
        }
      }
    }
  }

  public static void main(String[] arguments) {
    int events = Integer.parseInt(arguments[7]);
    int joined = Integer.parseInt(arguments[8]);
    Properties properties = new Properties();
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[6]);
    properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    properties.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 20);
    properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
    properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 2000);
    properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 4 << 20);

    ThreadLocal<Scorer> scorer = ThreadLocal.withInitial(() -> new Scorer(arguments[5], events, joined));
    StreamsBuilder builder = new StreamsBuilder();
    var table = builder.globalTable(
        arguments[3],
        Consumed.with(Serdes.Bytes(), Serdes.ByteArray()),
        Materialized.<Bytes, byte[]>as(Stores.inMemoryKeyValueStore("rows"))
            .withKeySerde(Serdes.Bytes())
            .withValueSerde(Serdes.ByteArray())
            .withCachingDisabled());
    builder.stream(arguments[2], Consumed.with(Serdes.Bytes(), Serdes.ByteArray()))
        .join(table, (key, event) -> key, (event, row) -> scorer.get().score(event, row))
        .to(arguments[4], Produced.with(Serdes.Bytes(), Serdes.ByteArray()));
    KafkaStreams streams = new KafkaStreams(builder.build(), properties);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
